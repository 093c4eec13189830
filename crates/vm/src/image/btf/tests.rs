//! On a small blob made by hand, and on damaged forms of it.

use proptest::prelude::*;

use super::*;

/// Builds BTF: kinds and layout as in btf.rst.
#[derive(Default)]
struct Blob {
    types: Vec<u8>,
    text: Vec<u8>,
}

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;
const SIGNED: u32 = 1 << 31;
const BIT_FIELDS: u32 = 1 << 31;

impl Blob {
    fn name(&mut self, name: &str) -> u32 {
        if self.text.is_empty() {
            self.text.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let at = self.text.len() as u32;
        self.text.extend_from_slice(name.as_bytes());
        self.text.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// A type without or with members (name, type or value, offset in bits).
    fn add(&mut self, kind: u32, name: &str, size_or_type: u32, members: &[(&str, u32, Option<u32>)]) {
        let name = self.name(name);
        let flags = kind & (1 << 31);
        let kind = kind & !(1 << 31);
        self.words(&[name, flags | kind << 24 | members.len() as u32, size_or_type]);
        for (name, value, offset) in members {
            let name = self.name(name);
            self.words(&[name, *value]);
            self.words(offset.as_slice());
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, self.types.len() as u32, self.types.len() as u32, self.text.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.text);
        bytes
    }
}

fn sample() -> Vec<u8> {
    let mut blob = Blob::default();
    blob.add(INT, "unsigned long", 8, &[]); // 1
    blob.words(&[64]);
    blob.add(PTR, "", 0, &[]); // 2
    blob.add(ARRAY, "", 0, &[]); // 3: unsigned long[4]
    blob.words(&[1, 1, 4]);
    blob.add(VOLATILE, "", 1, &[]); // 4
    blob.add(TYPEDEF, "seq_t", 4, &[]); // 5: volatile unsigned long
    blob.add(STRUCT, "list", 16, &[("head", 2, Some(0)), ("len", 5, Some(64))]); // 6
    blob.add(UNION, "", 16, &[("both", 6, Some(0)), ("first", 1, Some(0))]); // 7
    blob.add(CONST, "", 6, &[]); // 8
    blob.add(ARRAY, "", 0, &[]); // 9: const struct list[3]
    blob.words(&[8, 1, 3]);
    blob.add(ARRAY, "", 0, &[]); // 10: unsigned long[2][4]
    blob.words(&[3, 1, 2]);
    let fields = [
        ("gp_seq", 5, Some(0)),
        ("", 7, Some(64)),
        ("node", 9, Some(192)),
        ("grid", 10, Some(576)),
        ("flag", 1, Some(3 << 24 | 1088)),
        ("tail", 11, Some(1152)),
    ];
    blob.add(ARRAY, "", 0, &[]); // 11: unsigned long[]
    blob.words(&[1, 1, 0]);
    blob.add(STRUCT | BIT_FIELDS, "state", 144, &fields); // 12
    blob.add(TYPEDEF, "state_t", 12, &[]); // 13
    blob.add(ENUM, "usage", 4, &[("USER", 0, None), ("SYSTEM", 2, None)]); // 14
    blob.add(ENUM | SIGNED, "signs", 4, &[("MINUS", u32::MAX, None)]); // 15
    blob.add(TYPEDEF, "loop", 16, &[]); // 16: itself
    blob.add(STRUCT, "endless", 8, &[("", 17, Some(0))]); // 17: holds itself
    blob.finish()
}

fn field(offset_bytes: usize, element_bytes: usize, count: usize) -> Field {
    Field { offset_bytes, size_bytes: element_bytes * count, element_bytes, count }
}

#[test]
fn fields() {
    let btf = Btf::parse(&sample()).unwrap();
    for (path, expected) in [
        ("gp_seq", field(0, 8, 1)),
        ("first", field(8, 8, 1)),
        ("both.len", field(16, 8, 1)),
        ("both", field(8, 16, 1)),
        ("node", field(24, 16, 3)),
        ("node[2].len", field(24 + 32 + 8, 8, 1)),
        ("node[1]", field(40, 16, 1)),
        ("grid", field(72, 8, 8)),
        ("grid[1]", field(72 + 32, 8, 4)),
        ("grid[1][3]", field(72 + 32 + 24, 8, 1)),
        ("tail", field(144, 8, 0)),
    ] {
        assert_eq!(btf.offset("state", path), Ok(expected), "{path}");
        assert_eq!(btf.offset("state_t", path), Ok(expected), "{path} through a typedef");
    }
    assert_eq!(btf.size_of("list"), Ok(16));
    assert!(btf.size_of("state_t").is_ok() && btf.size_of("usage").is_err() && btf.size_of("").is_err());
}

#[test]
fn enumerators() {
    let btf = Btf::parse(&sample()).unwrap();
    assert_eq!(btf.enum_value("usage", "SYSTEM"), Ok(2));
    assert_eq!(btf.enum_value("signs", "MINUS"), Ok(-1));
    let error = btf.enum_value("usage", "IDLE").unwrap_err().to_string();
    assert!(error.contains("IDLE") && error.contains("usage"), "{error}");
    assert!(matches!(btf.enum_value("state", "x"), Err(BtfError::NoType { kind: "enum", .. })));
}

#[test]
fn questions_without_an_answer_name_structure_and_field() {
    let btf = Btf::parse(&sample()).unwrap();
    for (structure, path) in [
        ("state", "missing"),
        ("state", "node[3]"),
        ("state", "gp_seq.x"),
        ("state", "gp_seq[0]"),
        ("state", "node.len"),
        ("state", "flag"),
        ("state", ""),
        ("state", "node["),
        ("state", "node[x]"),
    ] {
        let error = btf.offset(structure, path).unwrap_err().to_string();
        assert!(error.contains(structure) && error.contains(path), "{error}");
    }
    let error = btf.offset("absent", "x").unwrap_err().to_string();
    assert!(error.contains("absent"), "{error}");
}

#[test]
fn cycles_end() {
    let btf = Btf::parse(&sample()).unwrap();
    assert!(matches!(btf.size_of("loop"), Err(BtfError::Damaged(_))));
    assert!(matches!(btf.offset("endless", "x"), Err(BtfError::Damaged(_))));
}

/// Each kind that `sample` lacks, and the old form of bit fields; what follows a record is found only if the
/// record's own length is right.
#[test]
fn kinds() {
    let mut blob = Blob::default();
    blob.add(FLOAT, "double", 8, &[]); // 1
    blob.add(FUNC_PROTO, "", 0, &[("a", 1, None), ("b", 1, None)]); // 2
    blob.add(FUNC, "f", 2, &[]); // 3
    blob.add(VAR, "v", 1, &[]); // 4
    blob.words(&[1]);
    blob.add(DATASEC, ".data", 8, &[("", 4, Some(8))]); // 5
    blob.add(TYPE_TAG, "rcu", 1, &[]); // 6
    blob.add(ENUM64, "wide", 8, &[("BIG", 5, Some(1)), ("LAST", u32::MAX, Some(u32::MAX))]); // 7
    blob.add(INT, "", 4, &[]); // 8: int, 3 bits of it
    blob.words(&[3]);
    blob.add(STRUCT, "kinds", 24, &[("d", 6, Some(0)), ("e", 7, Some(64)), ("old", 8, Some(128))]); // 9
    blob.add(DECL_TAG, "tag", 9, &[]); // 10
    blob.words(&[u32::MAX]);
    blob.add(TYPE_TAG, "tagged", 9, &[]); // 11
    blob.add(TYPEDEF, "kinds_t", 11, &[]); // 12
    let btf = Btf::parse(&blob.finish()).unwrap();
    assert_eq!(btf.offset("kinds_t", "d"), Ok(field(0, 8, 1)));
    assert_eq!(btf.offset("kinds_t", "e"), Ok(field(8, 8, 1)));
    assert!(matches!(btf.offset("kinds", "old"), Err(BtfError::BadPath { .. })));
    assert_eq!(btf.enum_value("wide", "BIG"), Ok(1 << 32 | 5));
    assert_eq!(btf.enum_value("wide", "LAST"), Ok(-1));
    assert!(btf.size_of("tagged").is_err() && btf.size_of("tag").is_err() && btf.size_of("f").is_err());
}

#[test]
fn what_is_not_known_is_refused() {
    let sized = |info: u32, change: fn(&mut Vec<u8>)| {
        let mut blob = Blob::default();
        let name = blob.name("x");
        blob.words(&[name, info, 8]);
        let mut bytes = blob.finish();
        change(&mut bytes);
        Btf::parse(&bytes).map(|btf| btf.size_of("x"))
    };
    assert_eq!(sized(STRUCT << 24, |_| ()), Ok(Ok(8)));
    for info in [0, 20 << 24, 31 << 24, STRUCT << 24 | 1 << 16, STRUCT << 24 | 1] {
        assert!(matches!(sized(info, |_| ()), Err(BtfError::Damaged(_))), "{info:#x}");
    }
    let changes: [fn(&mut Vec<u8>); 6] = [
        |bytes| bytes[0] = 0,
        |bytes| bytes[2] = 2,
        |bytes| bytes[4] = 20,
        |bytes| bytes[12] -= 1,
        |bytes| bytes[24] = 3,
        |bytes| *bytes.last_mut().unwrap() = b'x',
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(matches!(sized(STRUCT << 24, change), Err(BtfError::Damaged(_))), "{number}");
    }
}

/// Each structure holds the one before it twice: 2 to the power of 30 places to look at, none too deep.
#[test]
fn what_branches_too_much_ends() {
    let mut blob = Blob::default();
    blob.add(STRUCT, "", 8, &[]);
    for inner in 1..=30 {
        let name = if inner == 30 { "tree" } else { "" };
        blob.add(STRUCT, name, 8, &[("", inner, Some(0)), ("", inner, Some(0))]);
    }
    let btf = Btf::parse(&blob.finish()).unwrap();
    assert!(matches!(btf.offset("tree", "x"), Err(BtfError::Damaged(_))));
}

/// An array of arrays as large as its numbers allow.
#[test]
fn sizes_do_not_wrap() {
    let mut blob = Blob::default();
    blob.add(STRUCT, "large", u32::MAX, &[]); // 1
    for element in 1..=3 {
        blob.add(ARRAY, "", 0, &[]); // 2 to 4
        blob.words(&[element, 1, u32::MAX]);
    }
    blob.add(STRUCT, "holder", 8, &[("a", 4, Some(0))]);
    let btf = Btf::parse(&blob.finish()).unwrap();
    for path in ["a", "a[4294967294]", "a[4294967294][4294967294]"] {
        assert!(btf.offset("holder", path).is_err(), "{path}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = sample();
    for length in 0..bytes.len() {
        assert!(Btf::parse(&bytes[..length]).is_err(), "{length}");
    }
}

/// Asks everything; whatever the answer, it must come.
fn ask(bytes: &[u8]) {
    let Ok(btf) = Btf::parse(bytes) else { return };
    for structure in ["state", "state_t", "list", "loop", "endless"] {
        let _ = btf.size_of(structure);
        for path in ["gp_seq", "first", "both.len", "node[2].len", "grid[1][3]", "tail", "flag", "missing"] {
            let _ = btf.offset(structure, path);
        }
    }
    let _ = btf.enum_value("usage", "SYSTEM");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damage_never_panics(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = sample();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        ask(&bytes);
    }

    #[test]
    fn noise_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 24..200)) {
        bytes[..4].copy_from_slice(&[0x9f, 0xeb, 1, 0]);
        ask(&bytes);
    }
}
