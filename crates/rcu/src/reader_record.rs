//! What a domain knows of one registered reader.
//!
//! `word` and `asked` share a line: the reader's exit touches no other. Everything else is for slow paths.

use crate::epoch;
use crate::futex::{Lock, announce};
use crate::platform::thread_id;
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicU32 as Event, compiler_fence};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The writer sleeps: wake it at the exit.
const ASKED_WAKE: u32 = 1;
/// Yield the CPU after the exit.
const ASKED_YIELD: u32 = 2;
/// A reader that is not late is asked too, because it may have the CPU that a late one waits for; the
/// scheduler may give it the CPU again, hence more than once. Without a limit, readers did 140 yields per
/// token.
const YIELDS_PER_TOKEN: u32 = 4;

/// One reader. Owned by a thread while registered; only that thread writes `word`.
#[derive(Default)]
pub(crate) struct Record {
    /// See `epoch.rs`.
    pub(crate) word: AtomicU64,
    /// What the next outermost exit is asked to do.
    asked: AtomicU32,
    /// The token for which the reader was last asked to yield, and how often.
    asked_for: AtomicU64,
    asked_times: AtomicU32,
    /// The word that scanners last found late, since when, and whether it was reported.
    pub(crate) late_word: AtomicU64,
    pub(crate) late_since_ns: AtomicU64,
    pub(crate) reported_word: AtomicU64,
    /// See `set_private`.
    private: AtomicBool,
    /// Thread id of the owner; 0 while nobody's. Negative: of an owner that has ended, or is in the parent of this
    /// process, and whose leaked section goes on.
    tid: AtomicI32,
    pub(crate) name: Lock<String>,
}

impl Record {
    /// Makes the calling thread the owner.
    pub(crate) fn adopt(&self, name: String) {
        debug_assert_eq!(self.word.load(Ordering::Relaxed), 0);
        *self.name.lock() = name;
        self.tid.store(thread_id(), Ordering::Relaxed);
    }

    /// Whether the thread with this id is the owner.
    pub(crate) fn is_owned_by(&self, tid: i32) -> bool {
        self.tid.load(Ordering::Relaxed) == tid
    }

    /// Whether a thread of this process is the owner.
    pub(crate) fn has_owner(&self) -> bool {
        self.tid.load(Ordering::Relaxed) > 0
    }

    /// The owner's thread id, and whether it has ended. The id is 0 while there is no owner.
    pub(crate) fn owner(&self) -> (i32, bool) {
        let tid = self.tid.load(Ordering::Relaxed);
        (tid.abs(), tid < 0)
    }

    pub(crate) fn is_in_section(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// The outermost section lends out no reference: the library reads in it, and nobody else. Until it is undone.
    pub(crate) fn set_private(&self, private: bool) {
        self.private.store(private, Ordering::Relaxed);
    }

    /// Whether somebody may hold references that a section of this record lent out. Asked in the child of a fork, where
    /// the record's thread is not.
    fn may_have_lent(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word != 0 && !(self.private.load(Ordering::Relaxed) && epoch::is_outermost(word))
    }

    /// Notes that the section goes on without its thread.
    pub(crate) fn outlive_thread(&self) {
        self.tid.store(-self.tid.load(Ordering::Relaxed).abs(), Ordering::Relaxed);
    }

    /// Takes the reader offline whatever it was in, and wakes writers that wait. No reference that a section of it lent
    /// out is left.
    pub(crate) fn abandon(&self, event: &Event) {
        // Release, as in `epoch::leave`.
        self.word.store(0, Ordering::Release);
        self.tid.store(0, Ordering::Relaxed);
        self.answer_if_asked(event);
    }

    /// Asks the reader to wake who waits, at its next outermost exit.
    pub(crate) fn ask_to_wake(&self) {
        self.ask(ASKED_WAKE);
    }

    /// Asks the reader to yield at its next outermost exit, for `token`: each time that it has answered the
    /// last request, but at most `YIELDS_PER_TOKEN` times.
    pub(crate) fn ask_to_yield(&self, token: u64) {
        if self.asked.load(Ordering::Relaxed) & ASKED_YIELD != 0 {
            return;
        }
        // Relaxed: writers race here, and one request more or less does not matter.
        if self.asked_for.load(Ordering::Relaxed) != token {
            self.asked_for.store(token, Ordering::Relaxed);
            self.asked_times.store(0, Ordering::Relaxed);
        }
        if self.asked_times.fetch_add(1, Ordering::Relaxed) < YIELDS_PER_TOKEN {
            self.ask(ASKED_YIELD);
        }
    }

    fn ask(&self, flag: u32) {
        // Release pairs with the Acquire in `answer`. A caller that then sleeps executes membarrier first:
        // the reader's exit either sees the flag, or its store of the word is visible to the caller.
        if self.asked.load(Ordering::Relaxed) & flag == 0 {
            self.asked.fetch_or(flag, Ordering::Release);
        }
    }

    /// The end of an outermost exit.
    #[inline(always)]
    pub(crate) fn answer_if_asked(&self, event: &Event) {
        // The load may not move before the exit's store, for the pairing in `ask`.
        compiler_fence(Ordering::SeqCst);
        if self.asked.load(Ordering::Relaxed) != 0 {
            self.answer(event);
        }
    }

    #[cold]
    #[inline(never)]
    fn answer(&self, event: &Event) {
        let asked = self.asked.swap(0, Ordering::AcqRel);
        if asked & ASKED_WAKE != 0 {
            announce(event);
        }
        if asked & ASKED_YIELD != 0 {
            std::thread::yield_now();
        }
    }

    /// In the child of a fork: `was` and `is` are the ids that the forking thread has in the parent and here. Whether
    /// the record is free now: its thread is in the parent, and was not in a section.
    pub(crate) fn is_free_after_fork(&self, was: i32, is: i32) -> bool {
        match self.tid.load(Ordering::Relaxed) {
            tid if tid == was => self.tid.store(is, Ordering::Relaxed),
            tid if tid <= 0 => {}
            _ if self.may_have_lent() => self.outlive_thread(),
            _ => {
                self.clear();
                return true;
            }
        }
        false
    }

    /// Takes a record offline that belongs to no thread of this process.
    pub(crate) fn clear(&self) {
        self.set_private(false);
        self.word.store(0, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        self.tid.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_token_asks_a_reader_to_yield_a_few_times_only() {
        let (record, event) = (Record::default(), Event::new(0));
        let asked = |token| {
            record.ask_to_yield(token);
            let asked = record.asked.load(Ordering::Relaxed) & ASKED_YIELD != 0;
            record.answer_if_asked(&event);
            asked
        };
        assert_eq!((0..10).filter(|_| asked(7)).count(), YIELDS_PER_TOKEN as usize);
        assert!(asked(8), "another token has requests of its own");
    }
}
