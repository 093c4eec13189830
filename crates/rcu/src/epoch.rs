//! Tokens and epochs: how a writer knows that no section from before its unlink is still running.
//!
//! A reader's word is 0 outside of sections. In a section, it holds the token counter's value at the outermost entry,
//! and in its low bits the depth of nesting. A writer unlinks an object, takes a new token `t`, executes a fence
//! (`order` in `core.rs`), and waits until every word is 0 or at least `t`.
//!
//! Why that is enough: consider a reader's entry, which reads the token counter.
//! - It reads `t` or more. The read-acquire synchronises with the writer's increment, so the section sees the unlink.
//! - It reads less than `t`. Either its word is stored before the writer's fence takes effect on its CPU; then the
//!   writer's scan sees the word and waits. Or the word is stored later; then the section's accesses also come after
//!   the fence and see the unlink.
//!
//! Token and depth are one word, written by one store. So a signal handler may enter sections of the same record
//! during an entry or exit: it leaves the word as it found it.
//!
//! Sources: tokens as in DPDK rte_rcu_qsbr; the asymmetric fence as in liburcu's memb flavour.

use crate::mode::is_asymmetric;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// How many bits of a word hold the depth of nesting.
const NEST_BITS: u32 = 12;
/// The deepest nesting, 4,095.
const NEST_MASK: u64 = (1 << NEST_BITS) - 1;
/// The distance between two tokens. There are 2^52 of them: at one per microsecond, enough for 142 years.
const STEP: u64 = 1 << NEST_BITS;

/// What readers read at each entry. On cache lines of its own, because it is written only once per grace period.
#[repr(align(128))]
pub(crate) struct Clock {
    token: AtomicU64,
    pub(crate) mode: AtomicU32,
}

impl Clock {
    pub(crate) fn new(mode: u32) -> Self {
        Self { token: AtomicU64::new(STEP), mode: AtomicU32::new(mode) }
    }

    pub(crate) fn tick(&self) -> u64 {
        // Release pairs with the Acquire in `now`: a reader that sees the token sees the unlink. Acquire orders the
        // tokens of several writers: the fence of a later token covers the unlinks of earlier ones.
        self.token.fetch_add(STEP, Ordering::AcqRel) + STEP
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        // Acquire pairs with the Release in `tick`.
        self.token.load(Ordering::Acquire)
    }
}

/// How many tokens this difference is.
#[cfg(all(test, not(loom)))]
pub(crate) fn steps(tokens: u64) -> u64 {
    tokens >> NEST_BITS
}

/// Enters a section, or nests one level deeper. Only the record's thread writes `word`.
///
/// # Panics
/// Beyond 4,095 nested sections.
#[inline(always)]
pub(crate) fn enter(word: &AtomicU64, clock: &Clock) {
    let held = word.load(Ordering::Relaxed);
    if held != 0 {
        return nest(word, held);
    }
    enter_alone(word, clock);
}

/// Enters a section of a record that is in none. Only one caller at a time may enter sections of it.
#[inline(always)]
pub(crate) fn enter_alone(word: &AtomicU64, clock: &Clock) {
    word.store(clock.now() | 1, Ordering::Relaxed);
    reader_fence(&clock.mode);
}

/// Whether a reader with this word may enter one more section: it is nested less than 4,095 deep.
pub(crate) fn can_nest(word: u64) -> bool {
    word & NEST_MASK != NEST_MASK
}

#[cold]
#[inline(never)]
fn nest(word: &AtomicU64, held: u64) {
    assert!(can_nest(held), "read sections nested more than 4,095 deep");
    word.store(held + 1, Ordering::Relaxed);
}

/// Orders the store of the word before the section's loads, against the writer's fence (`Core::order`).
///
/// The mode is read AFTER the word is stored. A domain that stops using membarrier changes the mode and calls
/// membarrier once more. An entry that read the old mode before that call has stored its word before the call, too,
/// so the writer sees it.
#[inline(always)]
fn reader_fence(mode: &AtomicU32) {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    if !is_asymmetric(mode) {
        fence(Ordering::SeqCst);
    }
}

/// Leaves a section. Returns whether it was the outermost.
#[inline(always)]
pub(crate) fn leave(word: &AtomicU64) -> bool {
    let held = word.load(Ordering::Relaxed);
    if held & NEST_MASK > 1 {
        word.store(held - 1, Ordering::Relaxed);
        return false;
    }
    leave_alone(word);
    true
}

/// Leaves the section that `enter_alone` entered.
#[inline(always)]
pub(crate) fn leave_alone(word: &AtomicU64) {
    // Release pairs with the Acquire in `oldest`: the section's reads come before the writer's free.
    word.store(0, Ordering::Release);
}

/// A quiescent state of a reader that stays in one long section: advances its word to the current token. Does nothing
/// in a nested section. Needs no fence: until the store is visible, the writer sees the older token and waits.
#[inline(always)]
pub(crate) fn refresh(word: &AtomicU64, clock: &Clock) {
    if is_outermost(word.load(Ordering::Relaxed)) {
        // Release pairs with the Acquire in `oldest`, as in `leave`.
        word.store(clock.now() | 1, Ordering::Release);
    }
}

/// Whether `word` holds up `token`.
pub(crate) fn holds_up(word: u64, token: u64) -> bool {
    word != 0 && word & !NEST_MASK < token
}

/// Whether a section with this word is not nested.
pub(crate) fn is_outermost(word: u64) -> bool {
    word & NEST_MASK == 1
}

/// The largest token, at most `limit`, that no word holds up.
pub(crate) fn oldest<'a>(words: impl Iterator<Item = &'a AtomicU64>, limit: u64) -> u64 {
    // Acquire pairs with the Release in `leave` and `refresh`.
    words
        .map(|w| w.load(Ordering::Acquire))
        .filter(|&w| w != 0)
        .fold(limit, |least, w| least.min(w & !NEST_MASK))
}

/// What a domain's writers share about tokens. Both values only grow.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Acknowledged {
    /// The largest token whose fence is complete.
    fenced: AtomicU64,
    /// The largest token known to have passed all readers.
    passed: AtomicU64,
}

impl Acknowledged {
    /// Records that the fence of `token` is complete, and with it that of every earlier token: their unlinks precede
    /// their increments, which precede this token's.
    pub(crate) fn fence_done(&self, token: u64) {
        // AcqRel: a scan with this limit comes after the fence.
        self.fenced.fetch_max(token, Ordering::AcqRel);
    }

    /// Whether the fence of `token` is complete.
    pub(crate) fn is_fenced(&self, token: u64) -> bool {
        self.fenced.load(Ordering::Acquire) >= token
    }

    /// Whether `token` is known to have passed.
    pub(crate) fn has_passed(&self, token: u64) -> bool {
        // Acquire pairs with the Release in `scan`: the readers' exits that the scanner saw precede the caller's free.
        self.passed.load(Ordering::Acquire) >= token
    }

    /// Looks at all words, and records the largest token that has passed. Tokens beyond the last complete fence do not
    /// count, whatever the words say: a reader may not see their unlinks, and its word may not be visible yet either.
    ///
    /// `words` lists the readers, and is called after the limit was read. In the opposite order, a reader that
    /// registers in between would be missed, and the limit could cover an unlink that its section did not see.
    pub(crate) fn scan<'a, W>(&self, words: impl FnOnce() -> W) -> u64
    where
        W: Iterator<Item = &'a AtomicU64>,
    {
        let limit = self.fenced.load(Ordering::Acquire);
        let passed = oldest(words(), limit);
        // Release pairs with the Acquire in `has_passed`.
        self.passed.fetch_max(passed, Ordering::AcqRel).max(passed)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "epoch_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "epoch_loom.rs"]
mod tests;
