//! The functions of `control.rs` under a model checker: all interleavings, and everything that their orderings allow.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib model_tests`

/// `control.rs` again, with the checker's atomics.
#[path = "control.rs"]
mod control;

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}
use super::group::{self, EMPTY, FREE, RETIRED};

use control::{WORDS, load, publish, release, retire, state};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

/// Groups without holes, as searches see them, and the entries of two slots, whose accesses loom checks.
struct Slots {
    groups: [[AtomicU64; WORDS]; 2],
    entries: [UnsafeCell<u64>; 2],
}

// SAFETY: loom reports accesses to an entry that are not ordered.
unsafe impl Sync for Slots {}

const TAG: u8 = 5;

impl Slots {
    /// Groups full of entries with other tags, except for the given lanes, which are EMPTY.
    fn new(empty: &[(usize, usize, usize)]) -> Arc<Self> {
        let mut words = [[0x0101_0101_0101_0101_u64; WORDS]; 2];
        for &(group, word, lane) in empty {
            words[group][word] |= u64::from(EMPTY) << (lane * 8);
        }
        let groups = words.map(|w| w.map(AtomicU64::new));
        Arc::new(Self { groups, entries: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn write(&self, entry: usize, value: u64) {
        // SAFETY: as above.
        self.entries[entry].with_mut(|p| unsafe { *p = value });
    }

    fn read(&self, entry: usize) -> u64 {
        // SAFETY: as above.
        self.entries[entry].with(|p| unsafe { *p })
    }

    /// The value of the entry that a search finds; entry 0 precedes entry 1 in the search.
    fn find(&self, second_group: usize) -> Option<u64> {
        for (at, words) in self.groups.iter().enumerate() {
            let group = load(words);
            if let Some(lane) = group.tagged(TAG).next() {
                let second = at == second_group && lane == SECOND;
                return Some(self.read(usize::from(second)));
            }
            if group.empty().any() {
                return None;
            }
        }
        None
    }
}

/// Lane of the second entry in its group, in the upper word.
const SECOND: usize = 8 + 3;

/// An update moves an entry from the first group's word 0, lane 2 to lane 3 of `second_group`'s word 1.
fn update_is_not_missed(second_group: usize) {
    loom::model(move || {
        let mut empty = vec![(0, 0, 2), (second_group, 1, 3)];
        empty.dedup();
        let slots = Slots::new(&empty);
        slots.write(0, 10);
        publish(&slots.groups[0][0], 2, EMPTY, TAG);
        let writer = slots.clone();
        let updating = thread::spawn(move || {
            writer.write(1, 11);
            publish(&writer.groups[second_group][1], 3, EMPTY, TAG);
            retire(&writer.groups[0][0], 2, TAG);
        });
        let seen = slots.find(second_group);
        assert!(matches!(seen, Some(10 | 11)), "a present key was missed");
        updating.join().unwrap();
        assert_eq!(slots.find(second_group), Some(11));
    });
}

#[test]
fn an_entry_is_complete_when_its_tag_is_seen() {
    for word in [0, 1] {
        loom::model(move || {
            let slots = Slots::new(&[(0, word, 2)]);
            let writer = slots.clone();
            let inserting = thread::spawn(move || {
                writer.write(0, 10);
                publish(&writer.groups[0][word], 2, EMPTY, TAG);
            });
            assert!(matches!(slots.find(0), None | Some(10)));
            inserting.join().unwrap();
        });
    }
}

#[test]
fn an_update_within_a_group_is_not_missed() {
    update_is_not_missed(0);
}

#[test]
fn an_update_into_another_group_is_not_missed() {
    update_is_not_missed(1);
}

#[test]
fn a_slot_is_written_again_only_after_its_entry_was_dropped() {
    loom::model(|| {
        let slots = Slots::new(&[(0, 0, 2)]);
        slots.write(0, 10);
        publish(&slots.groups[0][0], 2, EMPTY, TAG);
        retire(&slots.groups[0][0], 2, TAG);
        let callback = slots.clone();
        let freeing = thread::spawn(move || {
            callback.write(0, 0);
            release(&callback.groups[0][0], 2);
        });
        if state(&slots.groups[0][0], 2) == FREE {
            slots.write(0, 11);
            publish(&slots.groups[0][0], 2, FREE, TAG);
            assert_eq!(slots.find(0), Some(11));
        }
        freeing.join().unwrap();
    });
}

/// Changes of neighbouring bytes at the same time do not undo each other.
#[test]
fn changes_of_neighbours_are_both_kept() {
    loom::model(|| {
        let slots = Slots::new(&[(0, 0, 2)]);
        publish(&slots.groups[0][0], 2, EMPTY, TAG);
        retire(&slots.groups[0][0], 2, TAG);
        let callback = slots.clone();
        let freeing = thread::spawn(move || release(&callback.groups[0][0], 2));
        retire(&slots.groups[0][0], 5, 1);
        freeing.join().unwrap();
        assert_eq!([2, 5].map(|lane| state(&slots.groups[0][0], lane)), [FREE, RETIRED]);
    });
}
