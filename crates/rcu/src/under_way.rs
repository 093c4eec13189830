//! Objects that a thread has in hand, between a bag and the queue or between the queue and their free: `barrier` waits for
//! them.
//!
//! A thread counts in the phase in which it took them. A barrier begins a new phase and waits until nobody is left in the
//! old one: those that come later do not make it wait for longer.

use crate::reclaim::Reclaim;
use crate::record::announce;
use crate::retired::Queue;

/// The caller has objects in hand: from a bag to the queue, or from the queue until they are freed. Ends when dropped, also
/// when a callback panics.
pub(crate) struct UnderWay<'a> {
    reclaim: &'a Reclaim,
    phase: usize,
    forks: u64,
}

impl<'a> UnderWay<'a> {
    /// Counts the caller, which has the lock of `reclaim`'s queue.
    pub(crate) fn begin(reclaim: &'a Reclaim, queue: &mut Queue) -> Self {
        Self { reclaim, phase: queue.begin(), forks: reclaim.garbage.forks() }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut queue = self.reclaim.queue.lock();
        if self.reclaim.garbage.forks() != self.forks {
            // Counted in the parent: this is the child of a fork that a callback made.
            return;
        }
        queue.running[self.phase] -= 1;
        let awaited = queue.running[self.phase] == 0 && queue.phase != self.phase;
        drop(queue);
        if awaited {
            announce(&self.reclaim.freed);
        }
    }
}

impl Reclaim {
    /// Counts the caller among those that have objects in hand.
    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        UnderWay::begin(self, &mut self.queue.lock())
    }
}
