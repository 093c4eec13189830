//! BTF as it is stored: the header, the type records, and the names.
//!
//! Source: Documentation/bpf/btf.rst, include/uapi/linux/btf.h; names in `backticks` that begin with `btf_`
//! are theirs. Of little-endian machines only.
//! Invariants: `Records::read` walks the records once, and keeps only those that lie inside with all their
//! members. What the input says is followed only through checked indexing, and sizes no allocation: the
//! memory is at most a small multiple of the input's. Ids, members' names and values are not checked before
//! they are asked for; types may refer to each other in circles, which those who follow them must limit.

use std::hash::Hasher;

/// Largest type information, bytes; a distribution's has 4 to 8 MB.
const BYTES_MAX: usize = 256 << 20;
/// Longest name that is found, bytes: the kernel's own limit (`KSYM_NAME_LEN`).
const NAME_BYTES_MAX: usize = 512;
const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// `struct btf_header`, bytes. A later version's may be longer.
const HEADER_BYTES: usize = 24;
/// The bits of `info` that have a meaning: number of members, kind, flag.
const INFO_BITS: u32 = 0x9f00_ffff;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FWD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Number of a type; 0 is void.
pub(super) type Id = u32;
/// Where a name begins in the names.
pub(super) type Name = u32;

/// All types and names.
pub(super) struct Records {
    /// The type section, which is all 32-bit words.
    words: Vec<u32>,
    text: Box<[u8]>,
    /// Where in `words` a type begins; type 1 is the first.
    starts: Vec<u32>,
    /// Hash of the name and id of each type that can be asked for by name; ascending.
    by_name: Vec<(u32, Id)>,
}

/// What a type is, as far as layouts need it.
#[derive(Clone, Copy)]
pub(super) enum Type<'a> {
    /// An integer or floating-point number. Not whole: a bit field of the old form, its place in the type.
    Number {
        size: usize,
        whole: bool,
    },
    Pointer,
    Array {
        element: Id,
        len: usize,
    },
    /// A struct or union.
    Structure(Structure<'a>),
    Enumeration(Enumeration<'a>),
    /// Another name, a qualifier or a tag of that type.
    Alias(Id),
    /// Void, a declaration, a function, a variable.
    Sizeless,
}

/// `struct btf_type` of a struct or union, and each `struct btf_member`.
#[derive(Clone, Copy)]
pub(super) struct Structure<'a> {
    pub size: usize,
    with_bit_fields: bool,
    members: &'a [[u32; 3]],
}

/// A member of a struct or union.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub name: Name,
    pub type_id: Id,
    /// Its place in the structure, bits.
    pub offset_bits: u32,
    /// Its size if it is a bit field, else 0.
    pub field_bits: u32,
}

/// An enumeration, with each `struct btf_enum` or `struct btf_enum64`.
#[derive(Clone, Copy)]
pub(super) struct Enumeration<'a> {
    pub size: usize,
    signed: bool,
    /// Words of an enumerator: 2, or 3 if the values have 64 bits.
    step: usize,
    words: &'a [u32],
}

/// `struct btf_type`, and the words that its kind has after it.
struct Record<'a> {
    name: Name,
    kind: u32,
    flag: bool,
    size_or_type: u32,
    tail: &'a [u32],
}

impl Records {
    /// Reads the header, and finds all types.
    pub(super) fn read(bytes: &[u8]) -> Result<Records, &'static str> {
        let (types, text) = sections(bytes)?;
        let (words, []) = types.as_chunks() else { return Err("its types end within a word") };
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let mut records = Records { words, text: text.into(), starts: Vec::new(), by_name: Vec::new() };
        records.index()?;
        Ok(records)
    }

    fn index(&mut self) -> Result<(), &'static str> {
        let mut rest = self.words.as_slice();
        while !rest.is_empty() {
            // Both fit: the input has at most BYTES_MAX.
            self.starts.push((self.words.len() - rest.len()) as u32);
            let id = self.starts.len() as Id;
            let (record, after) = Record::split(rest)?;
            if record.name as usize >= self.text.len() {
                return Err("a type's name lies outside its names");
            }
            let asked_for = matches!(record.kind, STRUCT | UNION | ENUM | ENUM64 | TYPEDEF);
            if asked_for && let Some(name) = name_at(&self.text, record.name) {
                self.by_name.push((hash(name), id));
            }
            rest = after;
        }
        self.by_name.sort_unstable();
        Ok(())
    }

    /// The structs, unions, enumerations and typedefs of this name, ids ascending. None has no name.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = Id> {
        let hash = hash(name.as_bytes());
        let from = self.by_name.partition_point(|(other, _)| *other < hash);
        let same = self.by_name[from..].iter().take_while(move |(other, _)| *other == hash);
        same.map(|(_, id)| *id)
            .filter(move |id| self.record(*id).is_some_and(|found| self.is_name(found.name, name)))
    }

    /// Whether the name at this place is `name`.
    pub(super) fn is_name(&self, at: Name, name: &str) -> bool {
        let rest = self.text.get(at as usize..).and_then(|text| text.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The type of this id, if there is one.
    pub(super) fn get(&self, id: Id) -> Option<Type<'_>> {
        if id == 0 { Some(Type::Sizeless) } else { Some(self.record(id)?.decode()) }
    }

    fn record(&self, id: Id) -> Option<Record<'_>> {
        let start = *self.starts.get((id as usize).checked_sub(1)?)?;
        let (record, _) = Record::split(self.words.get(start as usize..)?).ok()?;
        Some(record)
    }
}

impl<'a> Record<'a> {
    /// The first record, and the words after it.
    fn split(words: &'a [u32]) -> Result<(Record<'a>, &'a [u32]), &'static str> {
        let [name, info, size_or_type, rest @ ..] = words else { return Err("its last type is cut off") };
        if info & !INFO_BITS != 0 {
            return Err("a type has bits set that mean nothing");
        }
        let kind = info >> 24 & 0x1f;
        let length = tail_words(kind, (info & 0xffff) as usize).ok_or("a type is of an unknown kind")?;
        let (tail, after) = rest.split_at_checked(length).ok_or("its last type is cut off")?;
        Ok((Record { name: *name, kind, flag: info >> 31 == 1, size_or_type: *size_or_type, tail }, after))
    }

    fn decode(&self) -> Type<'a> {
        let size = self.size_or_type as usize;
        match (self.kind, self.tail) {
            (INT, [encoding]) => {
                let (bits, shift) = (encoding & 0xff, encoding >> 16 & 0xff);
                Type::Number { size, whole: shift == 0 && bits as usize == size * 8 }
            }
            (FLOAT, _) => Type::Number { size, whole: true },
            (PTR, _) => Type::Pointer,
            (ARRAY, [element, _, len]) => Type::Array { element: *element, len: *len as usize },
            (STRUCT | UNION, members) => {
                let (members, _) = members.as_chunks();
                Type::Structure(Structure { size, with_bit_fields: self.flag, members })
            }
            (ENUM, words) => Type::Enumeration(Enumeration { size, signed: self.flag, step: 2, words }),
            (ENUM64, words) => Type::Enumeration(Enumeration { size, signed: self.flag, step: 3, words }),
            (TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG, _) => Type::Alias(self.size_or_type),
            _ => Type::Sizeless,
        }
    }
}

impl Structure<'_> {
    /// Number of members.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The members, as they were declared.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> {
        self.members.iter().map(|[name, type_id, offset]| {
            let (offset_bits, field_bits) =
                if self.with_bit_fields { (offset & 0xff_ffff, offset >> 24) } else { (*offset, 0) };
            Member { name: *name, type_id: *type_id, offset_bits, field_bits }
        })
    }
}

impl Enumeration<'_> {
    /// The enumerators' names and values, as they were declared. A value above `i64::MAX` wraps around.
    pub(super) fn enumerators(&self) -> impl Iterator<Item = (Name, i64)> {
        self.words.chunks_exact(self.step).filter_map(|words| match *words {
            [name, low, high] => Some((name, (u64::from(high) << 32 | u64::from(low)) as i64)),
            [name, value] if self.signed => Some((name, i64::from(value as i32))),
            [name, value] => Some((name, value.into())),
            _ => None,
        })
    }
}

/// Words after a record's first three, of a kind with this `vlen`; `None` if the kind is unknown.
fn tail_words(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
        INT | VAR | DECL_TAG => 1,
        ARRAY => 3,
        ENUM | FUNC_PROTO => 2 * members,
        STRUCT | UNION | DATASEC | ENUM64 => 3 * members,
        _ => return None,
    })
}

/// The type section and the names: both inside the data, the names beginning and ending with a zero.
fn sections(bytes: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    if bytes.len() > BYTES_MAX {
        return Err("too long");
    }
    let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or("too short")?;
    if header[..2] != MAGIC.to_le_bytes() {
        return Err("wrong magic number");
    }
    if header[2] != VERSION {
        return Err("unknown version");
    }
    let (words, _) = header.as_chunks();
    let [header, types_at, types_bytes, text_at, text_bytes] =
        [1, 2, 3, 4, 5].map(|word: usize| u32::from_le_bytes(words[word]) as usize);
    if header < HEADER_BYTES {
        return Err("its header is too short");
    }
    let section = |at: usize, length: usize| {
        let from = header.checked_add(at)?;
        bytes.get(from..from.checked_add(length)?)
    };
    let types = section(types_at, types_bytes).ok_or("its types lie outside it")?;
    let text = section(text_at, text_bytes).ok_or("its names lie outside it")?;
    match text {
        [0] | [0, .., 0] => Ok((types, text)),
        _ => Err("its names do not begin or end"),
    }
}

/// The name that begins there, unless it is empty or too long.
fn name_at(text: &[u8], at: Name) -> Option<&[u8]> {
    let name = text.get(at as usize..)?.iter().take(NAME_BYTES_MAX + 1).position(|byte| *byte == 0)?;
    (name > 0).then(|| &text[at as usize..][..name])
}

fn hash(name: &[u8]) -> u32 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(name);
    hasher.finish() as u32
}
