//! Layouts of the guest kernel's types: where a field lies, how large it is, what an enumerator is worth.
//!
//! Source: Documentation/bpf/btf.rst; how it is stored is the business of `records`. BTF gives layouts, never
//! addresses.
//! Invariant: malformed input gives an error, never a panic, an endless loop or unbounded memory; so every
//! walk has a limit.

mod records;

use records::{Id, Member, Records, Structure, Type};

/// A kernel's type information.
pub struct Btf {
    types: Records,
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
#[allow(missing_docs, reason = "the messages say what they are, and what their fields are")]
pub enum BtfError {
    #[error("the kernel's type information (BTF) is damaged: {0}")]
    Damaged(String),
    #[error(
        "this kernel has no {kind} {name}; it is of a version that is not supported, or configured without it"
    )]
    NoType { kind: &'static str, name: String },
    #[error(
        "this kernel has no {name} in {of}; it is of a version that is not supported, or configured without it"
    )]
    NoMember { of: String, name: String },
    /// The field has no address of its own, or the path goes where it cannot.
    #[error("{of}.{path}: {problem}")]
    BadPath { of: String, path: String, problem: &'static str },
}

/// Longest chain of typedefs and qualifiers, deepest nesting of anonymous members and arrays.
const DEPTH_MAX: u32 = 32;
/// Types of one name that are looked at: real kernels have a few.
const MOST_ALIKE: usize = 64;
/// Most members looked at to find one; the largest structures have some hundred, a record can have 65535.
const MEMBERS_MAX: usize = 1 << 18;
/// Pointers of the only architecture there are guests for, bytes.
const POINTER_BYTES: usize = 8;

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
        Ok(Btf { types: Records::read(bytes).map_err(damaged)? })
    }

    /// Where `path` lies in `structure` (a struct, a union, or a typedef of one). A path is names joined by
    /// dots, an array's element by its index: `"node[0].qsmask"`. Members of anonymous structures and unions
    /// are found without naming those.
    ///
    /// # Errors
    /// No such structure or field; a bit field; an index outside the array.
    pub fn offset(&self, structure: &str, path: &str) -> Result<Field, BtfError> {
        let bad = |problem| BtfError::BadPath { of: structure.to_owned(), path: path.to_owned(), problem };
        let mut current = Type::Structure(self.structure(structure)?);
        let mut offset_bytes = 0_usize;
        for step in path.split('.') {
            let (name, indices) = parse_step(step).ok_or_else(|| bad("not NAME or NAME[INDEX]"))?;
            let Type::Structure(outer) = current else {
                return Err(bad("goes through something that is not a structure"));
            };
            let mut left = MEMBERS_MAX;
            let found = self.member(&outer, name, DEPTH_MAX, &mut left)?;
            let (bits, member) = found.ok_or_else(|| BtfError::NoMember {
                of: format!("struct {structure}"),
                name: path.to_owned(),
            })?;
            current = self.plain(member.type_id)?;
            let in_type = matches!(current, Type::Number { whole: false, .. });
            if bits % 8 != 0 || member.field_bits != 0 || in_type {
                return Err(bad("is a bit field, which has no address"));
            }
            offset_bytes = offset_bytes.checked_add(bits / 8).ok_or_else(too_large)?;
            for index in indices {
                let Type::Array { element, len } = current else {
                    return Err(bad("has an index but is no array"));
                };
                if index >= len {
                    return Err(bad("has an index outside the array"));
                }
                current = self.plain(element)?;
                let before = index.checked_mul(self.size(current, DEPTH_MAX)?);
                offset_bytes = before.and_then(|b| offset_bytes.checked_add(b)).ok_or_else(too_large)?;
            }
        }
        let (element_bytes, count) = self.extent(current, DEPTH_MAX)?;
        let size_bytes = element_bytes.checked_mul(count).ok_or_else(|| bad("is too large"))?;
        Ok(Field { offset_bytes, size_bytes, element_bytes, count })
    }

    /// Size of a struct, union, or typedef of one, bytes.
    pub fn size_of(&self, structure: &str) -> Result<usize, BtfError> {
        Ok(self.structure(structure)?.size)
    }

    /// The value of `enumerator` in `enum name`.
    pub fn enum_value(&self, name: &str, enumerator: &str) -> Result<i64, BtfError> {
        let mut known = false;
        for id in self.types.named(name).take(MOST_ALIKE) {
            let Type::Enumeration(found) = self.plain(id)? else { continue };
            known = true;
            let mut enumerators = found.enumerators();
            if let Some((_, value)) = enumerators.find(|(at, _)| self.types.is_name(*at, enumerator)) {
                return Ok(value);
            }
        }
        if known {
            return Err(BtfError::NoMember { of: format!("enum {name}"), name: enumerator.to_owned() });
        }
        Err(BtfError::NoType { kind: "enum", name: name.to_owned() })
    }

    fn structure(&self, name: &str) -> Result<Structure<'_>, BtfError> {
        for id in self.types.named(name).take(MOST_ALIKE) {
            if let Type::Structure(found) = self.plain(id)? {
                return Ok(found);
            }
        }
        Err(BtfError::NoType { kind: "struct", name: name.to_owned() })
    }

    /// The member of this name and its offset in bits; also looked for inside anonymous members. `left` is
    /// how many members may still be looked at: the same structure can be inside another many times over.
    fn member(
        &self,
        outer: &Structure<'_>,
        name: &str,
        depth: u32,
        left: &mut usize,
    ) -> Result<Option<(usize, Member)>, BtfError> {
        *left = left.checked_sub(outer.len()).ok_or_else(|| damaged("too many members"))?;
        if let Some(member) = outer.members().find(|member| self.types.is_name(member.name, name)) {
            return Ok(Some((member.offset_bits as usize, member)));
        }
        let depth = deeper(depth)?;
        for member in outer.members().filter(|member| self.types.is_name(member.name, "")) {
            if let Type::Structure(inner) = self.plain(member.type_id)?
                && let Some((bits, found)) = self.member(&inner, name, depth, left)?
            {
                return Ok(Some((member.offset_bits as usize + bits, found)));
            }
        }
        Ok(None)
    }

    /// The type of this id, behind typedefs and qualifiers.
    fn plain(&self, mut id: Id) -> Result<Type<'_>, BtfError> {
        let mut depth = DEPTH_MAX;
        loop {
            let found = self.types.get(id).ok_or_else(|| damaged("a type that is not there"))?;
            let Type::Alias(of) = found else { return Ok(found) };
            id = of;
            depth = deeper(depth)?;
        }
    }

    /// Size of an element, and number of them: an array of arrays counts over both.
    fn extent(&self, of: Type<'_>, depth: u32) -> Result<(usize, usize), BtfError> {
        let Type::Array { element, len } = of else { return Ok((self.size(of, depth)?, 1)) };
        let (element_bytes, inner) = self.extent(self.plain(element)?, deeper(depth)?)?;
        Ok((element_bytes, inner.checked_mul(len).ok_or_else(too_large)?))
    }

    fn size(&self, of: Type<'_>, depth: u32) -> Result<usize, BtfError> {
        match of {
            Type::Number { size, .. } => Ok(size),
            Type::Structure(found) => Ok(found.size),
            Type::Enumeration(found) => Ok(found.size),
            Type::Pointer => Ok(POINTER_BYTES),
            Type::Array { .. } => {
                let (element_bytes, count) = self.extent(of, depth)?;
                element_bytes.checked_mul(count).ok_or_else(too_large)
            }
            Type::Alias(_) | Type::Sizeless => Err(damaged("a field of a type without a size")),
        }
    }
}

fn damaged(problem: &str) -> BtfError {
    BtfError::Damaged(problem.to_owned())
}

fn too_large() -> BtfError {
    damaged("an array that is too large")
}

fn deeper(depth: u32) -> Result<u32, BtfError> {
    depth.checked_sub(1).ok_or_else(|| damaged("types nested without end"))
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

#[cfg(test)]
mod tests;
