//! Tests on handmade tables in both orders, and on damaged copies of them.

use proptest::prelude::*;

use super::*;

/// The order of the tables, and the kind of addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// As Linux 5.10.
    Old,
    /// As Debian's Linux 6.1.
    Middle,
    /// As Linux 6.12.
    New,
    /// As Linux 6.15: addresses relative to the base alone.
    Plain,
}

/// A kernel's read-only data with these symbols and many more, and the offset of its digits. The first symbols are
/// per-CPU ones.
pub fn tables(form: Form, base: u64, symbols: &[(&str, u64)]) -> (Vec<u8>, usize) {
    let filler = (0..700).map(|number| (format!("filler_{number}"), base + 0x10_0000 + 16 * number));
    let mut symbols: Vec<(String, u64)> =
        symbols.iter().map(|(name, address)| (name.to_string(), *address)).chain(filler).collect();
    symbols.sort_by_key(|(_, address)| *address);
    let mut names = Vec::new();
    let mut markers = Vec::new();
    for (index, (name, _)) in symbols.iter().enumerate() {
        if index % 256 == 0 {
            markers.push(names.len() as u32);
        }
        // The token 1 stands for "rcu_".
        let stored = format!("D{name}").replace("rcu_", "\x01");
        names.push(stored.len() as u8);
        names.extend_from_slice(stored.as_bytes());
    }
    let tokens = |token: u8| match token {
        1 => "rcu_".to_string(),
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' => char::from(token).to_string(),
        other => format!("~{other}"),
    };
    let (mut table, mut index) = (Vec::new(), Vec::new());
    for token in 0..=255 {
        index.extend_from_slice(&(table.len() as u16).to_le_bytes());
        table.extend_from_slice(format!("{}\0", tokens(token)).as_bytes());
    }
    let offsets: Vec<u8> = symbols
        .iter()
        .flat_map(|(_, address)| {
            let number = match (form, *address >= base) {
                (Form::Plain, _) => (address - base) as u32,
                (_, true) => (base as i64 - 1 - *address as i64) as i32 as u32,
                (_, false) => *address as u32,
            };
            number.to_le_bytes()
        })
        .collect();
    let count = (symbols.len() as u64).to_le_bytes();
    let marks: Vec<u8> = markers.iter().flat_map(|marker| marker.to_le_bytes()).collect();
    let base = base.to_le_bytes();
    let by_name: Vec<u8> =
        (0..symbols.len() as u32).flat_map(|number| [7, (number >> 8) as u8, number as u8]).collect();
    let parts: Vec<&[u8]> = match form {
        Form::Old => vec![&offsets, &base, &count, &names, &marks, &table, &index],
        Form::Middle => vec![&offsets, &base, &count, &names, &marks, &by_name, &table, &index],
        _ => vec![&count, &names, &marks, &table, &index, &offsets, &base],
    };
    let mut bytes = vec![0xcc; 4096];
    for part in parts {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend_from_slice(part);
    }
    bytes.resize(bytes.len() + 4096, 0xcc);
    let digits = memchr::memmem::find(&bytes, DIGITS).unwrap();
    (bytes, digits)
}

const BASE: u64 = KERNEL_MAP + 0x2340_0000;

fn some(form: Form) -> Vec<(&'static str, u64)> {
    let per_cpu = if form == Form::Plain { BASE + 0x40_0080 } else { 0x2_0040 };
    vec![
        ("rcu_data", per_cpu),
        ("_text", BASE),
        ("rcu_state", BASE + 0x20_0000),
        ("rcu_state", BASE + 0x30_0000),
    ]
}

#[test]
fn all_forms_are_read() {
    for form in [Form::Old, Form::Middle, Form::New, Form::Plain] {
        let symbols = some(form);
        let (bytes, digits) = tables(form, BASE, &symbols);
        let found =
            decode(&bytes, digits, &["_text", "rcu_state", "rcu_data", "filler_699", "absent"]).unwrap();
        assert_eq!(found["_text"], BASE, "{form:?}");
        assert_eq!(found["rcu_state"], BASE + 0x20_0000, "the first of its name, {form:?}");
        assert_eq!(found["rcu_data"], symbols[0].1, "{form:?}");
        assert_eq!(found["filler_699"], BASE + 0x10_0000 + 16 * 699);
        assert_eq!(found.len(), 4);
        let functions = [BASE + 0x20_0000, BASE + 0x10_0000 + 16 * 5, BASE + 0x10_0001, 0, u64::MAX];
        let named = names(&bytes, digits, &functions).unwrap();
        assert_eq!(named.len(), 2, "{form:?}: {named:?}");
        assert_eq!(named[&functions[0]], "rcu_state");
        assert_eq!(named[&functions[1]], "filler_5");
    }
}

#[test]
fn a_base_outside_the_kernel_s_map_is_none() {
    let (bytes, digits) = tables(Form::New, 0x1000_0000, &[("_text", 0x1000_0000)]);
    assert_eq!(decode(&bytes, digits, &["_text"]), None);
}

#[test]
fn addresses_that_do_not_ascend_are_none() {
    let (mut bytes, digits) = tables(Form::New, BASE, &some(Form::New));
    let end = bytes.len() - 4096 - 8;
    // Set the last symbol's number to that of the base.
    bytes[end - 8..end].copy_from_slice(&[0xff; 8]);
    assert_eq!(decode(&bytes, digits, &["_text"]), None);
}

#[test]
fn damaged_tables_give_an_answer_or_none() {
    let whole = [Form::Old, Form::Middle, Form::New, Form::Plain].map(|form| tables(form, BASE, &some(form)));
    let damage = (
        0..4_usize,
        proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        prop::option::of(any::<prop::sample::Index>()),
    );
    let config =
        proptest::test_runner::Config { cases: 3000, failure_persistence: None, ..Default::default() };
    let found = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let tested = runner.run(&damage, |(which, pokes, cut)| {
        let (mut bytes, digits) = whole[which].clone();
        for (at, value) in pokes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()).max(1));
        }
        let symbols = decode(&bytes, digits, &["_text", "rcu_state"]);
        found.set(found.get() + u32::from(symbols.is_some()));
        std::hint::black_box(names(&bytes, digits, &[BASE, BASE + 0x10_0000]));
        Ok(())
    });
    tested.unwrap();
    assert!(found.get() > 100, "only {} were found", found.get());
}

/// Before the tokens lies nothing but words that each look like the end of markers, and each place before these like the
/// beginning of names.
#[test]
fn tables_of_nothing_but_beginnings_end_soon() {
    let (whole, digits) = tables(Form::New, BASE, &some(Form::New));
    let tokens = Tokens::find(&whole, digits).unwrap();
    let mut bytes = Vec::new();
    // Markers 0 and 131072, which ask for at least 257 names, and the number of these in front of each place.
    for word in [131_072_u64 << 32, 300, 131_072 << 32, 512, 0x0101_0101_0101_0101] {
        bytes.clear();
        bytes.extend(std::iter::repeat_n((131_072_u64 << 32).to_le_bytes(), 1 << 18).flatten());
        for (at, place) in bytes.chunks_exact_mut(8).enumerate().filter(|(at, _)| at % 2 == 1) {
            place.copy_from_slice(&if at % 4 == 1 { word } else { 300 }.to_le_bytes());
        }
        let begin = bytes.len();
        bytes.extend_from_slice(&whole[tokens.begin..tokens.end]);
        let mut budget = Budget(1 << 20);
        assert_eq!(place_of_names(&bytes, begin, &mut budget), None);
        assert!(budget.0 < MARKED, "it was not spent: {}", budget.0);
        assert_eq!(decode(&bytes, begin + digits - tokens.begin, &["_text"]), None);
    }
    let mut spent = Budget(3);
    assert_eq!((spent.spend(2), spent.spend(2), spent.spend(1)), (Some(()), None, Some(())));
}

/// With ever fewer steps the tables of a kernel are no longer read: each part of the search is paid for.
#[test]
fn what_takes_too_many_steps_is_none() {
    let (bytes, digits) = tables(Form::Middle, BASE, &some(Form::Middle));
    let tokens = Tokens::find(&bytes, digits).unwrap();
    assert!(place_of_names(&bytes, tokens.begin, &mut Budget(1 << 20)).is_some());
    assert!(place_of_names(&bytes, tokens.begin, &mut Budget(MARKED)).is_none());
}
