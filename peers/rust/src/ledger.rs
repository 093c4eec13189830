//! What became of the deleted nodes: how many were handed to the scheme and freed, by whom, and after what delay.
//!
//! The delay of a delete runs from its unlink to the instant before its memory is freed. The histogram holds the deletes
//! issued within the window, whenever they are freed.

use crate::clock::now_ns;
use crate::histogram::Histogram;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// What a thread is. A library's own threads keep the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A scheme's own thread.
    Background,
    /// One of the benchmark's readers.
    Reader,
    /// The benchmark's writer.
    Writer,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Background) };
}

/// Says what the calling thread is.
pub fn set_role(role: Role) {
    ROLE.set(role);
}

/// Counts of deletes and frees, and the histogram of delays. Every thread writes to it.
#[derive(Debug)]
pub struct Ledger {
    window_start_ns: AtomicU64,
    window_end_ns: AtomicU64,
    retired: AtomicU64,
    freed: AtomicU64,
    freed_by: [AtomicU64; 3],
    delay: Histogram,
}

impl Default for Ledger {
    /// A ledger whose window has not begun.
    fn default() -> Self {
        Self {
            window_start_ns: AtomicU64::new(u64::MAX),
            window_end_ns: AtomicU64::new(u64::MAX),
            retired: AtomicU64::default(),
            freed: AtomicU64::default(),
            freed_by: Default::default(),
            delay: Histogram::default(),
        }
    }
}

impl Ledger {
    /// Deletes from this time of `CLOCK_MONOTONIC` on are in the window.
    pub fn open_window(&self, start_ns: u64) {
        self.window_start_ns.store(start_ns, Relaxed);
    }

    /// Deletes from this time of `CLOCK_MONOTONIC` on are not in the window any more.
    pub fn close_window(&self, end_ns: u64) {
        self.window_end_ns.store(end_ns, Relaxed);
    }

    /// Counts a node that is about to be handed to the scheme.
    pub fn count_retired(&self) {
        self.retired.fetch_add(1, Relaxed);
    }

    /// Records the delay of a node unlinked at `unlinked_ns` that is about to be freed.
    ///
    /// The bounds are read relaxed: a delete of the window was handed over by the writer after it had set the start,
    /// and what was unlinked before a bound that is set meanwhile lies on the right side of either value.
    pub fn record(&self, unlinked_ns: u64) {
        if (self.window_start_ns.load(Relaxed)..self.window_end_ns.load(Relaxed)).contains(&unlinked_ns) {
            self.freed_by[ROLE.get() as usize].fetch_add(1, Relaxed);
            self.delay.record(now_ns().saturating_sub(unlinked_ns));
        }
    }

    /// Counts a freed node.
    pub fn count_freed(&self) {
        // Release: pairs with the acquire in `unreclaimed`, so that who sees 0 sees all that was recorded.
        self.freed.fetch_add(1, Release);
    }

    /// Nodes handed to the scheme and not yet freed.
    pub fn unreclaimed(&self) -> u64 {
        let freed = self.freed.load(Acquire);
        self.retired.load(Relaxed) - freed
    }

    /// Frees of the window's deletes, by role.
    pub fn freed_by(&self, role: Role) -> u64 {
        self.freed_by[role as usize].load(Relaxed)
    }

    /// The delays of the window's deletes.
    pub fn delay(&self) -> &Histogram {
        &self.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deletes_of_the_window_are_recorded() {
        let ledger = Ledger::default();
        ledger.record(5);
        ledger.open_window(10);
        ledger.close_window(20);
        set_role(Role::Writer);
        for unlinked_ns in [9, 10, 19, 20] {
            ledger.record(unlinked_ns);
        }
        assert_eq!((ledger.delay().count(), ledger.freed_by(Role::Writer)), (2, 2));
    }

    #[test]
    fn unreclaimed_is_retired_less_freed() {
        let ledger = Ledger::default();
        ledger.count_retired();
        ledger.count_retired();
        ledger.count_freed();
        assert_eq!(ledger.unreclaimed(), 1);
    }
}
