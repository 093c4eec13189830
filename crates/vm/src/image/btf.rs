//! Layouts of the guest kernel's types: where a field lies, how large it is, what an enumerator is worth.
//!
//! Source: Documentation/bpf/btf.rst; parsing is the btf-rs crate's. BTF gives layouts, never addresses.
//! Invariant: malformed input gives an error, never a panic, an endless loop or unbounded memory. So the
//! header is checked here first (the crate trusts its lengths), and every walk has a limit.

use btf_rs::{BtfType, Member, Struct, Type};

/// A kernel's type information.
pub struct Btf {
    types: btf_rs::Btf,
}

/// Where a field lies in a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// From the start of the structure the path began in.
    pub offset_bytes: usize,
    /// Of the whole field: of all elements if it is an array.
    pub size_bytes: usize,
    /// Of one element; equal to `size_bytes` if it is no array.
    pub element_bytes: usize,
    /// Number of elements, over all dimensions; 1 if it is no array. A flexible array has 0.
    pub count: usize,
}

/// Why a question about types has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The bytes are not BTF.
    #[error("the kernel's type information (BTF) is damaged: {0}")]
    Damaged(String),
    /// There is no such type.
    #[error(
        "this kernel has no {kind} {name}; it is of a version that is not supported, or configured without it"
    )]
    NoType {
        /// "struct" or "enum".
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// There is no such field or enumerator.
    #[error(
        "this kernel has no {name} in {of}; it is of a version that is not supported, or configured without it"
    )]
    NoMember {
        /// The structure or enumeration.
        of: String,
        /// The path or the enumerator.
        name: String,
    },
    /// The field has no address of its own, or the path goes where it cannot.
    #[error("{of}.{path}: {problem}")]
    BadPath {
        /// The structure.
        of: String,
        /// The path.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Longest chain of typedefs and qualifiers, deepest nesting of anonymous members and arrays.
const DEPTH_MAX: u32 = 32;
/// Pointers of the only architecture there are guests for, bytes.
const POINTER_BYTES: usize = 8;
/// Largest type information, bytes; a distribution's has 4 to 8 MB.
const BTF_BYTES_MAX: usize = 256 << 20;
const MAGIC: u16 = 0xeb9f;

impl std::fmt::Debug for Btf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Btf").finish_non_exhaustive()
    }
}

impl Btf {
    /// Parses a `.BTF` section, or the content of `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// The bytes are not the BTF of a little-endian machine.
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        check_header(bytes).map_err(|problem| BtfError::Damaged(problem.to_owned()))?;
        let types = btf_rs::Btf::from_bytes(bytes).map_err(|error| BtfError::Damaged(error.to_string()))?;
        Ok(Btf { types })
    }

    /// Where `path` lies in `structure` (a struct, a union, or a typedef of one). A path is names joined by
    /// dots, an array's element by its index: `"node[0].qsmask"`. Members of anonymous structures and unions
    /// are found without naming those.
    ///
    /// # Errors
    /// No such structure or field; a bit field; an index outside the array.
    pub fn offset(&self, structure: &str, path: &str) -> Result<Field, BtfError> {
        let bad = |problem| BtfError::BadPath { of: structure.to_owned(), path: path.to_owned(), problem };
        let mut current = Type::Struct(self.structure(structure)?);
        let mut offset_bytes = 0;
        for step in path.split('.') {
            let (name, indices) = parse_step(step).ok_or_else(|| bad("not NAME or NAME[INDEX]"))?;
            let (Type::Struct(outer) | Type::Union(outer)) = &current else {
                return Err(bad("goes through something that is not a structure"));
            };
            let (bits, member) = self.member(outer, name, DEPTH_MAX)?.ok_or_else(|| BtfError::NoMember {
                of: format!("struct {structure}"),
                name: path.to_owned(),
            })?;
            if bits % 8 != 0 || member.bitfield_size().is_some_and(|bits| bits != 0) {
                return Err(bad("is a bit field, which has no address"));
            }
            offset_bytes += bits as usize / 8;
            current = self.plain(self.chained(&member)?)?;
            for index in indices {
                let Type::Array(array) = &current else { return Err(bad("has an index but is no array")) };
                if index >= array.len() {
                    return Err(bad("has an index outside the array"));
                }
                let element = self.plain(self.chained(array)?)?;
                offset_bytes += index * self.size(&element, DEPTH_MAX)?;
                current = element;
            }
        }
        let (element_bytes, count) = self.extent(&current, DEPTH_MAX)?;
        let size_bytes = element_bytes.checked_mul(count).ok_or_else(|| bad("is too large"))?;
        Ok(Field { offset_bytes, size_bytes, element_bytes, count })
    }

    /// Size of a struct, union, or typedef of one, bytes.
    ///
    /// # Errors
    /// No such structure.
    pub fn size_of(&self, structure: &str) -> Result<usize, BtfError> {
        Ok(self.structure(structure)?.size())
    }

    /// Whether the kernel has this struct, union, or typedef of one.
    pub fn has_struct(&self, structure: &str) -> bool {
        self.structure(structure).is_ok()
    }

    /// The value of `enumerator` in `enum name`.
    ///
    /// # Errors
    /// No such enumeration or enumerator.
    pub fn enum_value(&self, name: &str, enumerator: &str) -> Result<i64, BtfError> {
        let mut known = false;
        for found in self.named(name)? {
            let value = match self.plain(found)? {
                Type::Enum(found) => {
                    known = true;
                    let member = self.find(&found.members, enumerator);
                    // The two's complement, as the crate gives the bits.
                    member.map(|m| if found.is_signed() { i64::from(m.val() as i32) } else { m.val().into() })
                }
                Type::Enum64(found) => {
                    known = true;
                    self.find(&found.members, enumerator).map(|member| member.val() as i64)
                }
                _ => None,
            };
            if let Some(value) = value {
                return Ok(value);
            }
        }
        if known {
            return Err(BtfError::NoMember { of: format!("enum {name}"), name: enumerator.to_owned() });
        }
        Err(BtfError::NoType { kind: "enum", name: name.to_owned() })
    }

    fn named(&self, name: &str) -> Result<Vec<Type>, BtfError> {
        // The empty name is that of all that are anonymous.
        if name.is_empty() {
            return Ok(Vec::new());
        }
        self.types.resolve_types_by_name(name).map_err(damaged)
    }

    fn structure(&self, name: &str) -> Result<Struct, BtfError> {
        for found in self.named(name)? {
            if let Type::Struct(found) | Type::Union(found) = self.plain(found)? {
                return Ok(found);
            }
        }
        Err(BtfError::NoType { kind: "struct", name: name.to_owned() })
    }

    fn find<'a, M: BtfType>(&self, members: &'a [M], name: &str) -> Option<&'a M> {
        members.iter().find(|member| self.types.resolve_name(*member).is_ok_and(|found| found == name))
    }

    /// The member of this name and its offset in bits; also looked for inside anonymous members.
    fn member(&self, outer: &Struct, name: &str, depth: u32) -> Result<Option<(u64, Member)>, BtfError> {
        if let Some(member) = self.find(&outer.members, name) {
            return Ok(Some((member.bit_offset().into(), member.clone())));
        }
        let depth = deeper(depth)?;
        for member in &outer.members {
            if !self.types.resolve_name(member).is_ok_and(|found| found.is_empty()) {
                continue;
            }
            if let Type::Struct(inner) | Type::Union(inner) = self.plain(self.chained(member)?)?
                && let Some((bits, found)) = self.member(&inner, name, depth)?
            {
                return Ok(Some((u64::from(member.bit_offset()) + bits, found)));
            }
        }
        Ok(None)
    }

    fn chained(&self, of: &dyn BtfType) -> Result<Type, BtfError> {
        self.types.resolve_chained_type(of).map_err(damaged)
    }

    /// The type behind typedefs and qualifiers.
    fn plain(&self, mut found: Type) -> Result<Type, BtfError> {
        let mut depth = DEPTH_MAX;
        loop {
            found = match &found {
                Type::Typedef(t) => self.chained(t)?,
                Type::Volatile(t) => self.chained(t)?,
                Type::Const(t) => self.chained(t)?,
                Type::Restrict(t) => self.chained(t)?,
                Type::TypeTag(t) => self.chained(t)?,
                _ => return Ok(found),
            };
            depth = deeper(depth)?;
        }
    }

    /// Size of an element, and number of them: an array of arrays counts over both.
    fn extent(&self, of: &Type, depth: u32) -> Result<(usize, usize), BtfError> {
        let Type::Array(array) = of else { return Ok((self.size(of, depth)?, 1)) };
        let (element_bytes, inner) = self.extent(&self.plain(self.chained(array)?)?, deeper(depth)?)?;
        let count = inner.checked_mul(array.len()).ok_or_else(too_large)?;
        Ok((element_bytes, count))
    }

    fn size(&self, of: &Type, depth: u32) -> Result<usize, BtfError> {
        Ok(match of {
            Type::Int(t) => t.size(),
            Type::Float(t) => t.size(),
            Type::Enum(t) => t.size(),
            Type::Enum64(t) => t.size(),
            Type::Struct(t) | Type::Union(t) => t.size(),
            Type::Ptr(_) => POINTER_BYTES,
            Type::Array(_) => {
                let (element_bytes, count) = self.extent(of, depth)?;
                element_bytes.checked_mul(count).ok_or_else(too_large)?
            }
            _ => return Err(BtfError::Damaged("a field of a type without a size".to_owned())),
        })
    }
}

fn damaged(error: btf_rs::Error) -> BtfError {
    BtfError::Damaged(error.to_string())
}

fn too_large() -> BtfError {
    BtfError::Damaged("an array that is too large".to_owned())
}

fn deeper(depth: u32) -> Result<u32, BtfError> {
    depth.checked_sub(1).ok_or_else(|| BtfError::Damaged("types nested without end".to_owned()))
}

/// NAME, or NAME[INDEX] with any number of indices.
fn parse_step(step: &str) -> Option<(&str, Vec<usize>)> {
    let (name, rest) = match step.find('[') {
        Some(at) => step.split_at(at),
        None => (step, ""),
    };
    let mut indices = Vec::new();
    let mut rest = rest;
    while !rest.is_empty() {
        let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
        indices.push(index.parse().ok()?);
        rest = after;
    }
    (!name.is_empty()).then_some((name, indices))
}

/// Both sections lie inside the data, and the text ends with a zero.
fn check_header(bytes: &[u8]) -> Result<(), &'static str> {
    let u32_at = |at: usize| {
        let word = bytes.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*word)).ok()
    };
    let [Some(header), Some(type_at), Some(type_bytes), Some(text_at), Some(text_bytes)] =
        [4, 8, 12, 16, 20].map(u32_at)
    else {
        return Err("too short");
    };
    if bytes.len() > BTF_BYTES_MAX {
        return Err("too long");
    }
    if bytes[..2] != MAGIC.to_le_bytes() {
        return Err("wrong magic number");
    }
    let section = |at: usize, length: usize| {
        let from = header.checked_add(at)?;
        bytes.get(from..from.checked_add(length)?)
    };
    section(type_at, type_bytes).ok_or("its types lie outside it")?;
    let text = section(text_at, text_bytes).ok_or("its names lie outside it")?;
    if text.last() == Some(&0) { Ok(()) } else { Err("its names do not end") }
}

#[cfg(test)]
mod tests;
