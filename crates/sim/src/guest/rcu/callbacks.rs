//! A CPU's callbacks, in order, in four segments (`rcu_segcblist`).
//!
//! From the front: DONE may be invoked; WAIT waits for the grace period that ends at its number; NEXT_READY for a later
//! one; NEXT was not assigned to one yet. While a batch runs, the callbacks that it took are in front of DONE.
//! Invariant: the queue's length is what the batch took plus the sum of the segments' lengths.

use std::collections::VecDeque;

use super::sequence::is_before;

/// Something to do after a grace period. Opaque to RCU: the guest encodes in it what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Callback(pub u64);

const DONE: usize = 0;
const WAIT: usize = 1;
const NEXT_READY: usize = 2;
const NEXT: usize = 3;

/// The callbacks of one CPU.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    queue: VecDeque<Callback>,
    lengths: [u64; 4],
    /// The number at which a segment's grace period ends; for WAIT and NEXT_READY.
    due: [u64; NEXT],
    /// Callbacks that the running batch took and did not invoke yet.
    taken: u64,
    /// Callbacks that the running batch invoked. They count until it ends, because a barrier must not miss them.
    invoked: u64,
}

impl Callbacks {
    /// Callbacks queued, those of a running batch included.
    #[inline]
    pub fn len(&self) -> u64 {
        self.queue.len() as u64 + self.invoked
    }

    /// Callbacks that may be invoked.
    #[inline]
    pub fn ready(&self) -> u64 {
        self.lengths[DONE]
    }

    /// Whether there are callbacks that are being invoked, or may be.
    pub fn are_ready(&self) -> bool {
        self.lengths[DONE] + self.taken > 0
    }

    /// Whether there are callbacks whose grace period has ended by `seq`, whether the CPU has noticed or not.
    pub fn are_due(&self, seq: u64) -> bool {
        self.are_ready() || self.lengths[WAIT] > 0 && !is_before(seq, self.due[WAIT])
    }

    /// Callbacks that must not be invoked yet.
    #[inline]
    pub fn pending(&self) -> u64 {
        self.after(DONE)
    }

    /// Callbacks not assigned to a grace period.
    #[inline]
    pub fn unassigned(&self) -> u64 {
        self.lengths[NEXT]
    }

    /// Callbacks behind a segment.
    #[inline]
    fn after(&self, segment: usize) -> u64 {
        self.lengths[segment + 1..].iter().sum()
    }

    /// A new callback.
    #[inline]
    pub fn push(&mut self, callback: Callback) {
        self.queue.push_back(callback);
        self.lengths[NEXT] += 1;
    }

    /// A callback that is to follow the last one: it joins its segment, so that it does not ask for a grace period of
    /// its own. False if there is none to follow.
    pub fn entrain(&mut self, callback: Callback) -> bool {
        if self.len() == 0 {
            return false;
        }
        let last = (DONE..=NEXT).rev().find(|&segment| self.lengths[segment] > 0).unwrap_or(DONE);
        self.queue.push_back(callback);
        self.lengths[last] += 1;
        true
    }

    /// What waited for grace periods that ended by `seq` may be invoked; what is left moves up.
    pub fn advance(&mut self, seq: u64) {
        let mut segment = WAIT;
        while segment < NEXT && !is_before(seq, self.due[segment]) {
            self.lengths[DONE] += std::mem::take(&mut self.lengths[segment]);
            segment += 1;
        }
        if segment == NEXT_READY {
            self.lengths[WAIT] = std::mem::take(&mut self.lengths[NEXT_READY]);
            self.due[WAIT] = self.due[NEXT_READY];
        }
    }

    /// Assigns to the grace period that ends at `seq` all callbacks that are not assigned to an earlier one. False if
    /// there are none, or no segment is left for them.
    pub fn accelerate(&mut self, seq: u64) -> bool {
        let is_earlier = |&segment: &usize| self.lengths[segment] > 0 && is_before(self.due[segment], seq);
        let earlier = (WAIT..NEXT).rev().find(is_earlier).unwrap_or(DONE);
        let into = earlier + 1;
        if self.after(earlier) == 0 || into == NEXT {
            return false;
        }
        self.lengths[into] = self.after(earlier);
        self.lengths[into + 1..].fill(0);
        self.due[into..].fill(seq);
        true
    }

    /// A batch takes the callbacks that are ready.
    pub fn begin_batch(&mut self) {
        self.taken = std::mem::take(&mut self.lengths[DONE]);
    }

    /// The next one that the batch took, now invoked.
    #[inline]
    pub fn invoke(&mut self) -> Option<Callback> {
        if self.taken == 0 {
            return None;
        }
        self.taken -= 1;
        self.invoked += 1;
        self.queue.pop_front()
    }

    /// The batch ends: what it did not invoke stays ready. Answers how many it invoked.
    pub fn end_batch(&mut self) -> u64 {
        self.lengths[DONE] += std::mem::take(&mut self.taken);
        std::mem::take(&mut self.invoked)
    }
}

#[cfg(test)]
#[path = "tests/callbacks.rs"]
mod tests;
