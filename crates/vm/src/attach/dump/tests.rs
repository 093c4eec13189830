//! Tests on handmade cores, whole and damaged.

use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;

/// A core whose segments are (physical address, bytes), each filled with its number from 1 on.
fn core(segments: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56 * segments.len()];
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    bytes[16..20].copy_from_slice(&[4, 0, 62, 0]);
    bytes[20] = 1;
    bytes[32] = 64;
    bytes[52] = 64;
    bytes[54] = 56;
    bytes[56] = segments.len() as u8;
    for (number, (physical, length)) in segments.iter().enumerate() {
        let at = bytes.len() as u64;
        let header = &mut bytes[64 + 56 * number..][..56];
        header[0] = 1;
        for (place, value) in [(8, at), (24, *physical), (32, *length), (40, *length)] {
            header[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes.extend(std::iter::repeat_n(number as u8 + 1, *length as usize));
    }
    bytes
}

fn written(bytes: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn refusal(bytes: &[u8]) -> String {
    Dump::open(written(bytes).path()).unwrap_err().to_string()
}

#[test]
fn memory_is_read_by_its_physical_addresses() {
    let file = written(&core(&[(0x10_0000, 4096), (0, 8192)]));
    let dump = Dump::open(file.path()).unwrap();
    assert_eq!((dump.bytes, dump.splits), (0x10_1000, [Split::NONE; 2]));
    let mut word = [9; 8];
    assert!(dump.read(8188, &mut word) && word == [2, 2, 2, 2, 0, 0, 0, 0], "holes are zero");
    assert!(dump.read(0x10_0ff8, &mut word) && word == [1; 8]);
    assert!(!dump.read(0x10_0ff9, &mut word) && !dump.read(u64::MAX, &mut word));
    let mut page = [9; 4096];
    assert!(dump.read_touched(4096, &mut page) && page == [2; 4096]);
    assert!(!dump.read_touched(8192, &mut page), "a hole is not searched");
    assert!(dump.duplicate().unwrap().read(0, &mut word) && word == [2; 8]);
}

#[test]
fn memory_that_is_there_twice_is_read_once() {
    let file = written(&core(&[(0, 8192), (4096, 8192), (0, 4096)]));
    let dump = Dump::open(file.path()).unwrap();
    let (mut word, starts) = ([0; 8], dump.parts.iter().map(|part| (part.start, part.end)));
    assert_eq!(starts.collect::<Vec<_>>(), [(0, 8192), (8192, 12288)]);
    assert!(dump.read(8188, &mut word) && word == [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn what_is_no_memory_is_refused_with_the_way_out() {
    for (bytes, why) in [
        (b"".to_vec(), "neither an ELF core nor"),
        (b"\x7fELF".to_vec(), "headers are damaged"),
        (b"KDUMP   and so on".to_vec(), "compressed dump"),
        (core(&[]), "holds no memory"),
        (core(&[(u64::MAX - 100, 4096)]), "holds no memory"),
    ] {
        let said = refusal(&bytes);
        assert!(said.contains(why) && said.contains("dump-guest-memory"), "{said}");
    }
    let mut program = core(&[(0, 4096)]);
    program[16] = 2;
    assert!(refusal(&program).contains("no core of an x86-64 machine"));
    assert!(Dump::open(Path::new("/")).unwrap_err().to_string().contains("not a file"));
}

#[test]
fn a_file_that_was_cut_holds_what_it_holds() {
    let whole = core(&[(0, 8192), (1 << 20, 4096)]);
    let file = written(&whole[..whole.len() - 4096 - 100]);
    let dump = Dump::open(file.path()).unwrap();
    assert_eq!(dump.bytes, 8192 - 100);
}

#[test]
fn damaged_headers_give_a_memory_or_an_error() {
    let whole = core(&[(0, 4096), (8192, 4096), (4096, 8192)]);
    let damage = proptest::collection::vec((0..64 + 3 * 56_usize, any::<u8>()), 0..8);
    let config =
        proptest::test_runner::Config { cases: 2000, failure_persistence: None, ..Default::default() };
    let tested = proptest::test_runner::TestRunner::new(config).run(&damage, |pokes| {
        let mut bytes = whole.clone();
        pokes.into_iter().for_each(|(at, value)| bytes[at] = value);
        if let Ok(parts) = parts(&bytes, bytes.len() as u64) {
            let mut end = 0;
            for part in parts {
                prop_assert!(part.start >= end && part.start < part.end && part.end <= HIGHEST);
                prop_assert!(part.at + (part.end - part.start) <= bytes.len() as u64);
                end = part.end;
            }
        }
        Ok(())
    });
    tested.unwrap();
}
