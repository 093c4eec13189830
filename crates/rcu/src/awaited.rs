//! Tokens whose writers asked the fence thread (`fence/thread.rs`) for a fence and did not wait for it.
//!
//! The fence of a token also serves all earlier tokens. So it is enough to remember the latest token of each call that is
//! still to come. A request is served by the call after the one under way, or by the one after that: at most two entries.

use crate::fence::Ticket;
use crate::futex::Lock;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A token, and what it waits for.
#[derive(Clone, Copy)]
struct Wait {
    token: u64,
    ticket: Ticket,
}

/// The fences that a domain awaits.
#[derive(Default)]
pub(crate) struct Awaited {
    /// Whether `waits` has an entry. Lets callers skip the lock.
    any: AtomicBool,
    waits: Lock<[Option<Wait>; 2]>,
}

impl Awaited {
    /// Remembers that `token` waits for `ticket`.
    pub(crate) fn add(&self, token: u64, ticket: Ticket) {
        let mut waits = self.waits.lock();
        let mine = Some(Wait { token, ticket });
        let same = waits.iter().position(|wait| wait.is_some_and(|w| w.ticket == ticket));
        let place = same.or_else(|| waits.iter().position(Option::is_none));
        match place {
            Some(at) => waits[at] = latest([waits[at], mine]),
            // Both entries are full: one of them has been served and was not taken out yet.
            None => *waits = [latest([waits[0], waits[1], mine]), None],
        }
        self.any.store(true, Ordering::Relaxed);
    }

    /// Takes out the waits whose call has ended, and those whose token `fenced` reports as fenced already. Returns
    /// the latest of their tokens.
    pub(crate) fn take_served(&self, fenced: impl Fn(u64) -> bool) -> Option<u64> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut waits = self.waits.lock();
        let served =
            waits.iter_mut().filter_map(|wait| wait.take_if(|w| fenced(w.token) || w.ticket.is_served()));
        let token = served.map(|w| w.token).max();
        self.any.store(waits.iter().any(Option::is_some), Ordering::Relaxed);
        token
    }

    /// Whether the domain awaits a fence.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// For the child of a fork, where nobody was asked for a fence.
    pub(crate) fn reset_after_fork(&self) {
        // SAFETY: if another thread held the lock, it is in the parent.
        unsafe { self.waits.reset_after_fork([None, None]) };
        *self.waits.lock() = [None, None];
        self.any.store(false, Ordering::Relaxed);
    }
}

/// The entry with the latest token. Its fence serves the others whatever their tickets: its ticket was made after its
/// token, and so after their tokens.
fn latest<const N: usize>(waits: [Option<Wait>; N]) -> Option<Wait> {
    waits.into_iter().flatten().max_by_key(|wait| wait.token)
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "awaited_tests.rs"]
mod tests;
