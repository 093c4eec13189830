//! Objects that a thread has in hand, between a bag and the queue or between the queue and their free: `barrier` waits for
//! them.
//!
//! A thread counts in the phase in which it took them. A barrier begins a new phase and waits until nobody is left in the
//! old one: those that come later do not make it wait for longer.

use crate::futex;
use crate::reclaim::Reclaim;
use crate::record::announce;
use crate::retired::Queue;
use crate::sync::atomic::Ordering;

/// The caller has objects in hand: from a bag to the queue, or from the queue until they are freed. Ends when dropped, also
/// when a callback panics.
pub(crate) struct UnderWay<'a> {
    reclaim: &'a Reclaim,
    phase: usize,
    forks: u32,
}

impl<'a> UnderWay<'a> {
    /// Counts the caller, which has the lock of `reclaim`'s queue.
    pub(crate) fn begin(reclaim: &'a Reclaim, queue: &mut Queue) -> Self {
        Self { reclaim, phase: queue.begin(), forks: queue.forks }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut queue = self.reclaim.queue.lock();
        if queue.forks != self.forks {
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

    /// Forks between the making of the domain and this process.
    pub(crate) fn forks(&self) -> u32 {
        self.queue.lock().forks
    }

    /// Waits until all threads have queued or freed what they have in hand now. They count in the phase that ends here;
    /// later ones in the next, so that the wait is for a bounded set.
    pub(crate) fn wait_for_those_under_way(&self) {
        let old = {
            let mut queue = self.queue.lock();
            queue.phase ^= 1;
            queue.phase ^ 1
        };
        loop {
            let seen = self.freed.load(Ordering::SeqCst);
            if self.queue.lock().running[old] == 0 {
                return;
            }
            futex::wait(&self.freed, seen, None);
        }
    }
}
