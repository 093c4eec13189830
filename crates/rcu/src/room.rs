//! Room in a domain's limits: reserved before anything is unlinked, and what is done where there is none.

use crate::clock::now_ns;
use crate::fence::NoFence;
use crate::garbage::Full;
use crate::options::AtLimit;
use crate::reclaim::Reclaim;
use crate::retired::Retired;
use crate::sync::yield_now;
use crate::trace;

/// Room for one object, reserved in a domain's limits.
pub(crate) struct Room<'a> {
    reclaim: &'a Reclaim,
    bytes: usize,
}

impl Room<'_> {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Uses the room for `retired`, and gives back what is left of it. Not under a lock: the domain frees
    /// here what is due.
    pub(crate) fn accept(self, retired: Retired) {
        let (reclaim, left) = (self.reclaim, self.bytes.checked_sub(retired.bytes()));
        std::mem::forget(self);
        reclaim.garbage.release(0, left.expect("an object fits in the room that was made for it"));
        reclaim.accept(retired);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.reclaim.garbage.release(1, self.bytes);
    }
}

impl Reclaim {
    /// Makes room for `bytes` by the domain's policy.
    pub(crate) fn admit(&self, bytes: usize) -> Result<(), Full> {
        let Err(full) = self.garbage.reserve(bytes) else { return Ok(()) };
        self.make_room(bytes, full)
    }

    #[cold]
    fn make_room(&self, bytes: usize, full: Full) -> Result<(), Full> {
        trace::limit_reached(full);
        let deadline_ns = match self.at_limit {
            AtLimit::Wait { timeout_ns } => Some(now_ns() + timeout_ns),
            AtLimit::Error => Some(0),
            AtLimit::Reclaim => None,
        };
        loop {
            let token = self.close_all();
            let mut stuck = self.is_freeing() || self.core.held_up_by_caller(token);
            let mut waited = self.core.check(token);
            if !waited && !stuck && deadline_ns != Some(0) {
                match self.core.wait_until(token, deadline_ns) {
                    Ok(passed) => waited = passed,
                    Err(NoFence) => stuck = true,
                }
            }
            self.free_due();
            if self.garbage.reserve(bytes).is_ok() {
                return Ok(());
            }
            // Slots pin what is left, which is as many objects as there are slots; or other threads are
            // freeing it.
            if deadline_ns.is_none() && (stuck || !self.core.pinned().is_empty()) {
                self.garbage.force(bytes);
                trace::limit_stayed(full, true);
                return Ok(());
            }
            if !waited || deadline_ns.is_some_and(|d| now_ns() >= d) {
                trace::limit_stayed(full, false);
                return Err(full);
            }
            yield_now();
        }
    }

    /// Makes room before anything is unlinked. The room is given back unless it is used.
    pub(crate) fn room(&self, bytes: usize) -> Result<Room<'_>, Full> {
        self.admit(bytes).map(|()| Room { reclaim: self, bytes })
    }

    /// Room for `bytes`, beyond the limits if there is none within them.
    pub(crate) fn room_in_any_case(&self, bytes: usize) -> Room<'_> {
        if self.admit(bytes).is_err() {
            self.garbage.force(bytes);
        }
        Room { reclaim: self, bytes }
    }
}
