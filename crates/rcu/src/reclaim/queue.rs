//! Closed batches in the order of their tokens, and the threads that have objects in hand: between a bag and the queue, or
//! between the queue and their free. `barrier` waits for those threads.
//!
//! A thread counts in the phase in which it took its objects. A barrier begins a new phase and waits until nobody is left
//! in the old one, so that threads that come later do not make it wait for longer.

use crate::futex::{Lock, announce};
use crate::garbage::Garbage;
use crate::retired::Retired;
use crate::sync::atomic::AtomicU32;
use std::collections::VecDeque;

/// Objects that share a token.
pub(super) struct Batch {
    pub(super) token: u64,
    pub(super) closed_ns: u64,
    pub(super) objects: Vec<Retired>,
}

/// See the text at the top of this file.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) batches: VecDeque<Batch>,
    /// Whether the last batch may take more objects, and with them a later token: no barrier has begun since it was added.
    open: bool,
    /// Objects whose grace period has passed, but that slots pin.
    pub(super) held: Vec<Retired>,
    /// Threads that have objects in hand, by the phase in which they took them.
    in_hand: [usize; 2],
    phase: usize,
}

impl Queue {
    /// Adds a batch in its place: a token is taken before its fence, so that a later one may be here already. Only an
    /// `open` batch takes more objects later: nobody waits for the token that it has now.
    pub(super) fn add(&mut self, batch: Batch, open: bool) {
        let before = self.batches.iter().rposition(|b| b.token <= batch.token);
        let at = before.map_or(0, |before| before + 1);
        if at == self.batches.len() {
            self.open = open;
        }
        self.batches.insert(at, batch);
    }

    /// The last batch, if it may take more objects.
    pub(super) fn open_batch(&mut self) -> Option<&mut Batch> {
        self.batches.back_mut().filter(|_| self.open)
    }

    /// From now on no batch in the queue takes more objects: a barrier waits for the tokens that they have.
    pub(super) fn seal(&mut self) {
        self.open = false;
    }

    /// Begins a new phase. Returns the old one.
    pub(super) fn next_phase(&mut self) -> usize {
        self.phase ^= 1;
        self.phase ^ 1
    }

    /// Whether no thread has objects in hand that it took in this phase.
    pub(super) fn is_over(&self, phase: usize) -> bool {
        self.in_hand[phase] == 0
    }

    /// For the child of a fork, which has no other thread.
    pub(super) fn forget_threads(&mut self) {
        self.in_hand = [0; 2];
    }
}

/// The caller has objects in hand. Ends when dropped, also when a callback panics.
pub(super) struct UnderWay<'a> {
    queue: &'a Lock<Queue>,
    garbage: &'a Garbage,
    /// Announced when a barrier waits for the last thread of its phase.
    freed: &'a AtomicU32,
    phase: usize,
    forks: u64,
}

impl<'a> UnderWay<'a> {
    /// Counts the caller, which has locked `queue`: `locked` is its content.
    pub(super) fn begin(
        queue: &'a Lock<Queue>,
        locked: &mut Queue,
        garbage: &'a Garbage,
        freed: &'a AtomicU32,
    ) -> Self {
        locked.in_hand[locked.phase] += 1;
        Self { queue, garbage, freed, phase: locked.phase, forks: garbage.forks() }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        if self.garbage.forks() != self.forks {
            // This is the child of a fork that a callback made: the caller was counted in the parent.
            return;
        }
        queue.in_hand[self.phase] -= 1;
        let awaited = queue.is_over(self.phase) && queue.phase != self.phase;
        drop(queue);
        if awaited {
            announce(self.freed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn batches_stand_in_the_order_of_their_tokens() {
        let mut queue = Queue::default();
        let batch = |token| Batch { token, closed_ns: 0, objects: Vec::new() };
        for (token, open, is_open) in
            [(5, true, true), (3, false, true), (7, false, false), (3, true, false), (9, true, true)]
        {
            queue.add(batch(token), open);
            assert_eq!(queue.open_batch().is_some(), is_open, "{token}");
        }
        assert_eq!(queue.batches.iter().map(|b| b.token).collect::<Vec<_>>(), [3, 3, 5, 7, 9]);
        queue.seal();
        assert!(queue.open_batch().is_none());
    }
}
