//! What a domain knows about one registered reader.
//!
//! `word` and `asked` share a cache line, and a reader's exit touches no other. Everything else is for slow paths.

use crate::epoch;
use crate::futex::{Lock, announce};
use crate::platform::thread_id;
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicU32 as Event, compiler_fence};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A writer sleeps and must be woken at the exit.
const ASKED_WAKE: u32 = 1;
/// The reader should yield its CPU after the exit.
const ASKED_YIELD: u32 = 2;
/// Readers that are not late are asked to yield, too, because one of them may have the CPU that a late reader waits
/// for. The scheduler may give it that CPU again, so it is asked more than once. Without a limit, readers yielded 140
/// times per token.
const YIELDS_PER_TOKEN: u32 = 4;

/// One reader. While it is registered a thread owns it, and only that thread writes `word`.
#[derive(Default)]
pub(crate) struct Record {
    /// See `epoch.rs`.
    pub(crate) word: AtomicU64,
    /// What the reader is asked to do at its next outermost exit.
    asked: AtomicU32,
    /// The token for which the reader was last asked to yield, and how often.
    asked_for: AtomicU64,
    asked_times: AtomicU32,
    /// The word that scanners last found late, since when it has been late, and the word that was reported last.
    pub(crate) late_word: AtomicU64,
    pub(crate) late_since_ns: AtomicU64,
    pub(crate) reported_word: AtomicU64,
    /// See `set_private`.
    private: AtomicBool,
    /// Thread id of the owner, or 0 if there is none. Negative if the owner has ended or is in the parent of this
    /// process, and has leaked a section that goes on.
    tid: AtomicI32,
    pub(crate) name: Lock<String>,
}

impl Record {
    pub(crate) fn adopt(&self, name: String) {
        debug_assert_eq!(self.word.load(Ordering::Relaxed), 0);
        *self.name.lock() = name;
        self.tid.store(thread_id(), Ordering::Relaxed);
    }

    pub(crate) fn is_owned_by(&self, tid: i32) -> bool {
        self.tid.load(Ordering::Relaxed) == tid
    }

    /// Whether a thread of this process is the owner.
    pub(crate) fn has_owner(&self) -> bool {
        self.tid.load(Ordering::Relaxed) > 0
    }

    /// The owner's thread id, or 0 if there is none; and whether the owner has ended.
    pub(crate) fn owner(&self) -> (i32, bool) {
        let tid = self.tid.load(Ordering::Relaxed);
        (tid.abs(), tid < 0)
    }

    pub(crate) fn is_in_section(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// While set, the outermost section lends out no reference: only this library reads in it.
    pub(crate) fn set_private(&self, private: bool) {
        self.private.store(private, Ordering::Relaxed);
    }

    /// Whether somebody may hold references that a section of this record lent out. For the child of a fork that does
    /// not have the record's thread.
    fn may_have_lent(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word != 0 && !(self.private.load(Ordering::Relaxed) && epoch::is_outermost(word))
    }

    /// Records that the section goes on without its thread.
    pub(crate) fn outlive_thread(&self) {
        self.tid.store(-self.tid.load(Ordering::Relaxed).abs(), Ordering::Relaxed);
    }

    /// Takes the reader offline whatever it was in, and wakes writers that wait. No reference that one of its
    /// sections lent out may be left.
    pub(crate) fn abandon(&self, event: &Event) {
        // Release, as in `epoch::leave`.
        self.word.store(0, Ordering::Release);
        self.tid.store(0, Ordering::Relaxed);
        self.answer_if_asked(event);
    }

    /// Asks the reader to wake waiting writers at its next outermost exit.
    pub(crate) fn ask_to_wake(&self) {
        self.ask(ASKED_WAKE);
    }

    /// Asks the reader to yield at its next outermost exit, for `token`: again whenever it has answered the last
    /// request, but at most `YIELDS_PER_TOKEN` times.
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
        // Release pairs with the Acquire in `answer`. A caller that is about to sleep executes membarrier first:
        // either the reader's exit sees the flag, or the caller sees the reader's store of its word.
        if self.asked.load(Ordering::Relaxed) & flag == 0 {
            self.asked.fetch_or(flag, Ordering::Release);
        }
    }

    /// Ends an outermost exit.
    #[inline(always)]
    pub(crate) fn answer_if_asked(&self, event: &Event) {
        // This load must not move before the exit's store, see `ask`.
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

    /// For the child of a fork. `was` and `is` are the ids of the forking thread in the parent and in the child.
    /// Returns whether the record is free now, because its thread is in the parent and was not in a section.
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

    /// Takes a record offline whose thread is not in this process.
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
