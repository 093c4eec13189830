//! A ring keeps what is wanted, no more, and leaves everything else in its folder alone; what is read is checked.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use reprieve_hindsight::line::{Header, Trigger};
use reprieve_hindsight::{Limits, ReadError, Ring, dump::dump, read};
use support::{LIMITS, SECOND_NS, header, sample, seconds};

fn open(path: &Path) -> Ring<reprieve_hindsight::disk::Folder> {
    Ring::open(path, header(), LIMITS).unwrap()
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    found.sort();
    found
}

#[test]
fn as_much_time_is_kept_as_is_wanted_across_writers() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = open(folder.path());
    (0..500).for_each(|second| ring.push(&sample(second, 1)).unwrap());
    drop(ring);
    let mut ring = open(folder.path());
    (500..2000).for_each(|second| ring.push(&sample(second, 1)).unwrap());
    let record = read(folder.path()).unwrap();
    let kept = seconds(&record);
    assert_eq!(kept, (2000 - kept.len() as u64..2000).collect::<Vec<u64>>());
    assert!((900..=960).contains(&kept.len()), "{}", kept.len());
    assert_eq!((record.damaged, record.torn, record.stretches.len()), (0, 0, 1));
    assert_eq!(record.stretches[0].samples.last(), Some(&sample(1999, 1)));
}

#[test]
fn no_more_bytes_are_kept_than_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { bytes: 1 << 20, ..LIMITS };
    let mut ring = Ring::open(folder.path(), header(), limits).unwrap();
    for second in 0..300 {
        ring.push(&sample(second, 100)).unwrap();
        let bytes: u64 = segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(bytes <= 1 << 20, "{bytes}");
    }
    let kept = seconds(&read(folder.path()).unwrap());
    assert!(kept.len() > 40 && kept.last() == Some(&299), "{kept:?}");
}

#[test]
fn foreign_files_stay_and_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["notes.txt", "hindsight-1.segment", "hindsight-000000000001.segment", "dump.reprieve"];
    names.iter().for_each(|name| fs::write(folder.path().join(name), "foreign\n").unwrap());
    let mut ring = Ring::open(folder.path(), header(), Limits { keep_ns: SECOND_NS, ..LIMITS }).unwrap();
    (0..200).for_each(|second| ring.push(&sample(second, 1)).unwrap());
    for name in names {
        assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), "foreign\n");
    }
    assert_eq!(*seconds(&read(folder.path()).unwrap()).last().unwrap(), 199);
}

#[test]
fn a_dump_is_the_ring_in_one_file_and_old_ones_give_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = open(folder.path());
    assert!(dump(folder.path(), "early", 0, 3).is_err());
    (0..130).for_each(|second| ring.push(&sample(second, 2)).unwrap());
    let trigger = Trigger { at_ns: 7, threshold: "gp_p99>50ms".into(), value: "60 ms".into() };
    ring.push_trigger(&trigger).unwrap();
    let path = dump(folder.path(), "gp_p99/..", 0, 3).unwrap();
    assert_eq!(path.file_name().unwrap(), "gp_p99----19700101T000000Z.reprieve");
    assert_eq!(read(&path).unwrap(), read(folder.path()).unwrap());
    assert_eq!(read(&path).unwrap().stretches[0].triggers, [trigger]);
    fs::write(folder.path().join("dumps/notes.reprieve"), "foreign").unwrap();
    let newer: Vec<PathBuf> =
        (1..=4).map(|day| dump(folder.path(), "x", day * SECOND_NS, 3).unwrap()).collect();
    let there: Vec<bool> = newer.iter().map(|path| path.exists()).collect();
    assert_eq!((there, path.exists()), (vec![false, true, true, true], false));
    // The notes, and no unfinished dump, are beside them.
    assert_eq!(fs::read_dir(folder.path().join("dumps")).unwrap().count(), 4);
}

#[test]
fn damage_is_counted_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = open(folder.path());
    (0..9).for_each(|second| ring.push(&sample(second, 1)).unwrap());
    let path = &segments(folder.path())[0];
    let mut bytes = fs::read(path).unwrap();
    let lines: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
    bytes[lines[3] - 5] ^= 4;
    bytes.truncate(lines[8] + 10);
    fs::write(path, &bytes).unwrap();
    let record = read(folder.path()).unwrap();
    assert_eq!((seconds(&record), record.damaged, record.torn), (vec![0, 1, 3, 4, 5, 6, 7], 1, 1));
    // A second copy of a line is out of order.
    let again = [&bytes[..lines[2] + 1], &bytes[lines[0] + 1..lines[1] + 1]].concat();
    fs::write(path, again).unwrap();
    assert_eq!(read(path).unwrap().damaged, 1);
}

#[test]
fn what_is_no_record_or_a_newer_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(read(folder.path()), Err(ReadError::NoRecord(_))));
    let path = folder.path().join("file");
    fs::write(&path, "{}\n").unwrap();
    assert!(matches!(read(&path), Err(ReadError::NoRecord(_))));
    fs::write(&path, "").unwrap();
    assert!(matches!(read(&path), Err(ReadError::NoRecord(_))));
    assert!(matches!(read(Path::new("/nowhere")), Err(ReadError::Io { .. })));
    let word = "reprieve-hindsight/7";
    let sum = crc32fast::hash(format!("{word} {{}}").as_bytes());
    fs::write(&path, format!("{word} {sum:08x} {{}}\n")).unwrap();
    let said = read(&path).unwrap_err().to_string();
    assert!(said.contains("its format is version 7, and this program reads up to 1"), "{said}");
}

#[test]
fn a_writer_keeps_segments_that_it_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = open(folder.path());
    (0..9).for_each(|second| ring.push(&sample(second, 1)).unwrap());
    drop(ring);
    let damaged = segments(folder.path()).remove(0);
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[20] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    let mut ring = open(folder.path());
    (9..12).for_each(|second| ring.push(&sample(second, 1)).unwrap());
    drop(ring);
    let record = read(folder.path()).unwrap();
    // Nobody knows of which boot the samples behind a damaged header are.
    assert_eq!((record.damaged, record.stretches.len()), (1, 2));
    assert_eq!(seconds(&record), (0..12).collect::<Vec<u64>>());

    let newer = folder.path().join("hindsight-000000000009.segment");
    let word = "reprieve-hindsight/2";
    let sum = crc32fast::hash(format!("{word} {{}}").as_bytes());
    fs::write(&newer, format!("{word} {sum:08x} {{}}\n")).unwrap();
    let refused = Ring::open(folder.path(), header(), LIMITS).unwrap_err().to_string();
    assert!(refused.contains("made by a newer program"), "{refused}");
    assert!(newer.exists());
}

/// Written by the first program that had the format. It must load for ever.
#[test]
fn a_record_of_version_1_still_loads() {
    let record = read(Path::new("tests/data/version-1.reprieve")).unwrap();
    assert_eq!((record.damaged, record.torn, record.stretches.len()), (0, 0, 2));
    let first = &record.stretches[0];
    assert_eq!(first.header, Header { program: "0.1.0".into(), ..header() });
    assert_eq!(first.samples, [sample(0, 2), sample(1, 2), sample(2, 2)]);
    assert_eq!(first.triggers.len(), 1);
    assert_eq!(record.stretches[1].samples, [sample(7, 1)]);
}

/// Makes the file that the test above reads; only to be run when the test data is first made.
#[test]
#[ignore = "would overwrite test data that must stay as it is"]
fn make_version_1() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = open(folder.path());
    (0..3).for_each(|second| ring.push(&sample(second, 2)).unwrap());
    let trigger = Trigger { at_ns: 3 * SECOND_NS, threshold: "gp_p99>10ms".into(), value: "15 ms".into() };
    ring.push_trigger(&trigger).unwrap();
    drop(ring);
    let later = Header { boot_id: "77aa".into(), ..header() };
    Ring::open(folder.path(), later, LIMITS).unwrap().push(&sample(7, 1)).unwrap();
    fs::copy(dump(folder.path(), "x", 0, 1).unwrap(), "tests/data/version-1.reprieve").unwrap();
}
