//! Room within a domain's limits: it is reserved before anything is unlinked. Also what happens if there is none.
//!
//! Invariant: a caller waits no longer than the domain's policy says, by default a millisecond. The caller may hold a
//! lock for which a reader waits, and that very reader may hold up the objects that would have to be freed.

use super::Reclaim;
use crate::fence::NoFence;
use crate::freeing::within_callback;
use crate::garbage::Full;
use crate::options::AtLimit;
use crate::platform::now_ns;
use crate::retired::Retired;
use crate::sync::yield_now;
use crate::trace;

/// Room for one object, reserved in a domain's limits.
pub(crate) struct Room<'a> {
    reclaim: &'a Reclaim,
    bytes: usize,
    /// How many forks the domain had seen when the room was reserved.
    forks: u64,
}

impl Room<'_> {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Uses the room for `retired`, and gives back what is left of it. Must not be called under a lock, because it
    /// frees what is due.
    pub(crate) fn accept(self, retired: Retired) {
        let (reclaim, left) = (self.reclaim, self.bytes.checked_sub(retired.bytes()));
        let forks = self.forks;
        std::mem::forget(self);
        let left = left.expect("an object fits in the room that was made for it");
        if reclaim.garbage.forks() == forks {
            reclaim.garbage.release(0, left);
        } else {
            // The child of a fork has recounted what is reserved, without this room.
            reclaim.garbage.take(retired.bytes());
        }
        reclaim.accept(retired);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.reclaim.garbage.forks() == self.forks {
            self.reclaim.garbage.release(1, self.bytes);
        }
    }
}

impl Reclaim {
    /// Reserves room for `bytes` within the limits, and waits for it as the domain's policy says. Call it before
    /// anything is unlinked. The room is given back unless it is used.
    pub(crate) fn room(&self, bytes: usize) -> Result<Room<'_>, Full> {
        self.garbage.reserve(bytes).or_else(|full| self.make_room(bytes, full))?;
        Ok(Room { reclaim: self, bytes, forks: self.garbage.forks() })
    }

    /// As `room`, but exceeds the limits if there is no room within them.
    pub(crate) fn room_in_any_case(&self, bytes: usize) -> Room<'_> {
        self.room(bytes).unwrap_or_else(|full| {
            self.garbage.force(bytes);
            trace::limit_exceeded(full);
            Room { reclaim: self, bytes, forks: self.garbage.forks() }
        })
    }

    #[cold]
    fn make_room(&self, bytes: usize, full: Full) -> Result<(), Full> {
        trace::limit_reached(full);
        // While a panic unwinds, nothing is freed here, and a wait would never end.
        if self.puts_aside() || std::thread::panicking() {
            return Err(full);
        }
        let deadline_ns = match self.at_limit {
            AtLimit::Wait { timeout_ns } => Some(now_ns().saturating_add(timeout_ns)),
            AtLimit::NoWait => Some(0),
            AtLimit::Reclaim => None,
        };
        loop {
            let token = self.close_all();
            let mut stuck = self.core.held_up_by_caller(token);
            let mut waited = self.core.check(token);
            if !waited && !stuck && deadline_ns != Some(0) {
                match self.core.wait_until(token, deadline_ns) {
                    Ok(passed) => waited = passed,
                    Err(NoFence) => stuck = true,
                }
            }
            match deadline_ns {
                None => self.free_due(),
                Some(0) => self.free_some_due(),
                Some(deadline_ns) => self.free_due_for(deadline_ns.saturating_sub(now_ns())),
            }
            if self.garbage.reserve(bytes).is_ok() {
                return Ok(());
            }
            // Waiting longer may be in vain: the caller itself may hold up the token, membarrier may be refused, or
            // slots may pin the objects. And within callbacks, two domains could wait for each other.
            let in_vain = stuck || within_callback() || !self.core.pinned().is_empty();
            if !waited || in_vain || deadline_ns.is_some_and(|d| now_ns() >= d) {
                return Err(full);
            }
            // Other threads are freeing it.
            yield_now();
        }
    }
}
