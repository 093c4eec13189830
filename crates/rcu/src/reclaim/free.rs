//! Frees batches whose tokens have passed, and whatever becomes due by that.

use super::queue::UnderWay;
use super::{PORTION, Reclaim};
use crate::freeing::freeing;
use crate::garbage::Freed;
use crate::platform::now_ns;
use crate::retired::{Retired, discard, free_all};
use crate::sync::atomic::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

impl Reclaim {
    /// Frees all that is due, and all that becomes due by that. Never waits. Does nothing within a callback.
    pub(crate) fn free_due(&self) {
        self.free_due_for(u64::MAX);
    }

    /// As `free_due`, for a call that retires: stops when half of the call's time is over. What has piled up while a
    /// CPU was away is thus freed by many calls.
    pub(crate) fn free_some_due(&self) {
        self.free_due_for(self.core.call_limit_ns / 2);
    }

    /// As `free_due`, but stops between two portions once `ns` have passed.
    pub(crate) fn free_due_for(&self, ns: u64) {
        // A callback that panics while another panic unwinds would end the process.
        if self.puts_aside() || std::thread::panicking() {
            return;
        }
        let (mut begun_ns, mut panic) = (None, None);
        loop {
            self.close_due_bags();
            if self.queued.load(Ordering::Relaxed) == 0 {
                break;
            }
            let begun_ns = *begun_ns.get_or_insert_with(now_ns);
            // If a callback panics, the other portions are still freed.
            match catch_unwind(AssertUnwindSafe(|| self.free_some())) {
                Ok(false) => break,
                Ok(true) => {}
                Err(payload) => match panic {
                    None => panic = Some(payload),
                    Some(_) => discard(payload),
                },
            }
            if now_ns() - begun_ns >= ns {
                break;
            }
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Frees what may be freed now, whether its batch is due or not. Called when a handle is dropped: the waiting
    /// objects may own all handles that are left, and then no later call would come by. Returns whether a later call
    /// is needed, because a fence is awaited or a panic unwinds.
    pub(crate) fn free_before_nobody_comes(&self) -> bool {
        if self.garbage.objects() == 0 || self.puts_aside() {
            return false;
        }
        if std::thread::panicking() {
            return true;
        }
        // If the bags are empty, a token and its membarrier would be wasted.
        if !self.bags.are_empty() {
            self.close_all();
        }
        // Ask before freeing: if a fence completes only after the frees, something is left to be freed.
        let awaited = self.core.awaits_fence();
        self.free_due();
        awaited || self.core.awaits_fence()
    }

    /// Frees what waits for awaited fences, and what is retired by that. Sleeps until these fences are complete.
    pub(crate) fn free_after_fences(&self) {
        while self.free_before_nobody_comes() {
            // While membarrier is refused, nothing will be freed.
            if self.core.wait_for_fence(self.core.clock.now(), None).is_err() {
                return;
            }
        }
    }

    fn free_some(&self) -> bool {
        let Some((due, under_way, longest_ns)) = self.take_due() else { return false };
        let bytes = due.iter().map(Retired::bytes).sum();
        let count = Freed::by_its_end(&self.garbage, due.len(), bytes);
        // SAFETY: `take_due` hands out objects whose token has passed and that no slot pins.
        freeing(self, || unsafe { free_all(due) });
        drop(count);
        drop(under_way);
        // With nothing in hand, because a subscriber may use the domain and may panic.
        self.core.report_duration(longest_ns);
        true
    }

    /// Frees everything when the domain ends. No handle is left, and so no borrow of one. Sections and slots that are
    /// still open belong to leaked guards, and no reference that these lent out is left either.
    pub(crate) fn shut_down(&self) {
        let mut objects = self.bags.empty();
        let mut queue = self.queue.lock();
        objects.append(&mut queue.held);
        queue.batches.drain(..).for_each(|mut batch| objects.append(&mut batch.objects));
        drop(queue);
        // SAFETY: see above. A thread's last use of a handle or of a reference precedes its drop of that handle,
        // which precedes the drop of the last handle (`Arc`).
        let free = || freeing(self, || unsafe { free_all(objects) });
        if !std::thread::panicking() {
            return free();
        }
        // A second panic would end the process.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(free)) {
            discard(payload);
        }
    }

    /// Takes objects that may be freed out of the queue, and counts the caller as having them in hand. Returns none
    /// if there are no such objects.
    fn take_due(&self) -> Option<(Vec<Retired>, UnderWay<'_>, u64)> {
        let (mut longest_ns, now_ns) = (0, now_ns());
        let mut queue = self.queue.lock();
        let (mut held, mut due) = (std::mem::take(&mut queue.held), Vec::new());
        let mut looked_at_held = false;
        // Objects that slots pin do not count as a portion, because those after them may be free.
        while due.is_empty() {
            let mut passed = Vec::new();
            while passed.len() < PORTION && queue.batches.front().is_some_and(|b| self.core.check(b.token)) {
                let Some(mut batch) = queue.batches.pop_front() else { break };
                // Taken from its end, where the cost does not depend on the batch's size.
                let kept = batch.objects.len().saturating_sub(PORTION);
                if kept == 0 && !batch.objects.is_empty() {
                    let ns = now_ns.saturating_sub(batch.closed_ns);
                    self.core.durations.record(ns);
                    longest_ns = longest_ns.max(ns);
                }
                passed.append(&mut batch.objects.split_off(kept));
                if kept > 0 {
                    queue.batches.push_front(batch);
                }
            }
            if passed.is_empty() && looked_at_held {
                break;
            }
            // Slots must be read after the tokens have passed.
            let slots = self.core.pinned();
            if !looked_at_held {
                passed.append(&mut held);
                looked_at_held = true;
            }
            let (pinned, free): (Vec<_>, Vec<_>) = passed.into_iter().partition(|r| r.is_held(&slots));
            held.extend(pinned);
            due = free;
        }
        queue.held = held;
        if due.is_empty() {
            return None;
        }
        self.queued.fetch_sub(due.len(), Ordering::Relaxed);
        let under_way = UnderWay::begin(&self.queue, &mut queue, &self.garbage, &self.freed);
        drop(queue);
        Some((due, under_way, longest_ns))
    }

    /// Closes the bags that are due, unless the reclaimer thread does.
    fn close_due_bags(&self) {
        if self.bags.are_empty() || self.has_thread.load(Ordering::Relaxed) {
            return;
        }
        self.bags.close_due(|| self.under_way(), |objects| _ = self.close(objects));
    }
}
