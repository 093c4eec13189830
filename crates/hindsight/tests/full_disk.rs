//! A disk that is full at any moment costs the oldest minutes, and what is written while there is no room; it corrupts nothing.
//! REPRIEVE_TEST_FULL_DISKS says at how many moments.

mod support;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use reprieve_hindsight::disk::{Disk, Folder};
use reprieve_hindsight::{Ring, read};
use support::{LIMITS, Numbers, header, rounds, sample, seconds};

/// A folder on a disk that holds so many bytes.
struct Small {
    folder: Folder,
    capacity: u64,
    /// Writes for which there was no room, or for a part.
    refused: u64,
}

impl Small {
    fn used(&self) -> u64 {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }
}

impl Disk for Small {
    type File = File;

    fn create(&mut self, name: &str) -> io::Result<File> {
        self.folder.create(name)
    }

    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let fits = self.capacity.saturating_sub(self.used()).min(bytes.len() as u64) as usize;
        self.folder.append(file, &bytes[..fits])?;
        if fits == bytes.len() {
            return Ok(());
        }
        self.refused += 1;
        Err(ErrorKind::StorageFull.into())
    }

    fn cut(&mut self, file: &mut File, length: u64) -> io::Result<()> {
        self.folder.cut(file, length)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    fn room(&self) -> Option<u64> {
        Some(self.capacity.saturating_sub(self.used()))
    }
}

fn small(path: &Path, capacity: u64) -> Ring<Small> {
    Ring::new(Small { folder: Folder::lock(path).unwrap(), capacity, refused: 0 }, header(), LIMITS)
}

#[test]
fn a_full_disk_at_any_moment_corrupts_nothing() {
    let (mut numbers, mut without) = (Numbers(1), 0);
    for round in 0..rounds("REPRIEVE_TEST_FULL_DISKS", 10) {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = small(folder.path(), u64::MAX);
        let (mut second, mut kept) = (0, Vec::new());
        let mut push = |ring: &mut Ring<Small>, numbers: &mut Numbers| {
            let done = ring.push(&sample(second, 1 + numbers.below(40)));
            kept.extend(done.is_ok().then_some(second));
            second += 1;
            done.is_ok()
        };
        (0..numbers.below(300)).for_each(|_| assert!(push(&mut ring, &mut numbers)));
        // Somebody else takes the room, but for a part of a line.
        ring.disk().capacity = ring.disk().used() + numbers.below(2_000);
        let refused = (0..300).filter(|_| !push(&mut ring, &mut numbers)).count();
        without += u64::from(refused > 0);
        assert!(ring.disk().refused > 0, "round {round}: the disk was never full");
        ring.disk().capacity = u64::MAX;
        (0..numbers.below(90)).for_each(|_| assert!(push(&mut ring, &mut numbers), "there is room again"));
        let record = read(folder.path()).unwrap_or_default();
        let found = seconds(&record);
        // All that was written is there, from the oldest that is kept on.
        let newest = &kept[kept.len() - found.len()..];
        assert_eq!((record.damaged, record.torn, &found[..]), (0, 0, newest), "round {round}");
        // The newest segment is not given up.
        assert!(found.len() >= kept.len().min(20), "round {round}: {} of {}", found.len(), kept.len());
    }
    eprintln!("in {without} rounds the ring had to go on without some samples");
}

#[test]
fn a_small_disk_holds_the_newest_samples() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = small(folder.path(), 256 << 10);
    let lost = (0..1000).filter(|second| ring.push(&sample(*second, 20)).is_err()).count();
    let found = seconds(&read(folder.path()).unwrap());
    assert_eq!((lost, found.last()), (0, Some(&999)));
    assert!(found.len() > 50 && found.is_sorted(), "{}", found.len());
}

#[test]
fn without_room_the_ring_stays_and_writes_are_tried() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = small(folder.path(), u64::MAX);
    (0..200).for_each(|second| ring.push(&sample(second, 1)).unwrap());
    ring.disk().capacity = 0;
    assert!((200..300).all(|second| ring.push(&sample(second, 1)).is_err()));
    let found = seconds(&read(folder.path()).unwrap());
    assert_eq!(found, (60..200).collect::<Vec<u64>>(), "one segment was tried to be traded for room");
    ring.disk().capacity = u64::MAX;
    ring.push(&sample(300, 1)).unwrap();
    assert_eq!(seconds(&read(folder.path()).unwrap()).last(), Some(&300));
}
