//! `barrier`: waits until everything that was retired before is freed, except what slots pin.

use super::Reclaim;
use crate::futex::{self, Lock};
use crate::platform::thread_id;
use crate::sync::atomic::{AtomicI32, Ordering};

/// The right to be the domain's only barrier. It holds the thread's id, because a callback that the barrier runs may
/// fork: the forking thread's barrier then goes on in the child.
struct OneBarrier<'a>(futex::Held<'a, AtomicI32>);

impl<'a> OneBarrier<'a> {
    fn begin(lock: &'a Lock<AtomicI32>) -> Self {
        let held = lock.lock();
        held.store(thread_id(), Ordering::Relaxed);
        Self(held)
    }
}

impl Drop for OneBarrier<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Reclaim {
    /// Waits until everything that was retired before the call is freed, except what slots pin.
    ///
    /// # Panics
    /// Within a section of the domain, or within a free: it would wait for itself.
    pub(crate) fn barrier(&self) {
        assert!(
            !self.puts_aside(),
            "deadlock: barrier was called within a callback of its domain, a map's closure or a hook"
        );
        let _one = OneBarrier::begin(&self.barrier);
        let objects = self.bags.empty();
        // Other threads may have taken objects out of bags before and not queued them yet.
        self.wait_for_those_under_way();
        // Tokens of queued batches no longer grow, and the barrier's token is later than all of them.
        self.queue.lock().seal();
        let token = self.close(objects);
        self.core.wait(token);
        self.free_due();
        // Other threads may still be freeing what they took before.
        self.wait_for_those_under_way();
    }

    /// Waits until all threads have queued or freed what they have in hand now. These count in the phase that ends
    /// here. Later ones count in the next phase, so that this waits for a bounded number.
    pub(crate) fn wait_for_those_under_way(&self) {
        let old = self.queue.lock().next_phase();
        loop {
            let seen = self.freed.load(Ordering::SeqCst);
            if self.queue.lock().is_over(old) {
                return;
            }
            futex::wait(&self.freed, seen, None);
        }
    }
}
