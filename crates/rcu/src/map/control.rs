//! Control bytes: the state of each slot, and the orderings that readers rely on.
//!
//! If the slot holds an entry, its byte is a tag (0 to 127, seven bits of the key's hash). Otherwise it is one of
//! three states:
//!
//! ```text
//! EMPTY --publish--> tag --retire--> RETIRED --release, a grace period later--> FREE --publish--> tag ...
//! ```
//!
//! Bytes are changed within words of eight, only by read-modify-write operations. Each change is a Release. So a
//! thread that loads a word with Acquire sees what preceded ALL its changes so far, not only the last one (release
//! sequences). Hence:
//! - A reader that sees a tag sees the entry (`publish` / `load`).
//! - A writer that replaces an entry publishes the new one in a slot with a higher number, and then retires the old
//!   one. Readers look at words in ascending order, each with Acquire. So a reader that finds the old entry retired
//!   has synchronised with the writer, and finds the new entry in this word or a later one (`retire` / `load`).
//! - A writer that sees FREE sees that the drop of the old entry is complete (`release` / `load`).
//!
//! `model_tests.rs` checks these functions exhaustively.

use super::atomics::{AtomicU64, Ordering};
use super::group::{FREE, Group, RETIRED, WIDTH};

/// Slots per word.
pub(super) const LANES: usize = 8;
/// Words per group.
pub(super) const WORDS: usize = WIDTH / LANES;

/// Loads a group's bytes, the lower half before the upper.
#[inline(always)]
pub(super) fn load(words: &[AtomicU64; WORDS]) -> Group {
    // Acquire pairs with the Release in `change`. It also keeps the loads in order, so that an entry that moved from
    // the lower half to the upper is seen in one of them.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    return Group::load(words);
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    {
        let low = words[0].load(Ordering::Acquire);
        let high = words[1].load(Ordering::Acquire);
        Group::new(low, high)
    }
}

/// Makes the entry in `lane` visible, which is already written. `was` is EMPTY or FREE.
pub(super) fn publish(word: &AtomicU64, lane: usize, was: u8, tag: u8) {
    // Release: the entry is complete before its tag is seen.
    change(word, lane, was, tag, Ordering::Release);
}

/// Marks the entry in `lane` as removed.
pub(super) fn retire(word: &AtomicU64, lane: usize, tag: u8) {
    // Release: the entry's successor, if it has one, is published before.
    change(word, lane, tag, RETIRED, Ordering::Release);
}

/// Gives back the slot in `lane`, whose entry is dropped.
pub(super) fn release(word: &AtomicU64, lane: usize) {
    // Release: the drop comes before the slot is written again.
    change(word, lane, RETIRED, FREE, Ordering::Release);
}

/// The byte of `lane`. Other threads change it only from RETIRED to FREE.
pub(super) fn state(word: &AtomicU64, lane: usize) -> u8 {
    (word.load(Ordering::Acquire) >> (lane * 8)) as u8
}

/// Changes one byte and leaves the others, which other threads may change at the same time.
fn change(word: &AtomicU64, lane: usize, from: u8, to: u8, ordering: Ordering) {
    let before = word.fetch_xor(u64::from(from ^ to) << (lane * 8), ordering);
    debug_assert_eq!((before >> (lane * 8)) as u8, from, "a control byte was changed by somebody else");
}
