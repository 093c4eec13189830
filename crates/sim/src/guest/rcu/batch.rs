//! Invoking callbacks, one by one, so that the guest can charge each (`rcu_do_batch`).

use super::callbacks::Callback;
use super::effects::Effects;
use super::state::Rcu;

/// Callbacks from which a batch is limited in time.
const TIMED_FROM: u64 = 100;
/// Callbacks between two looks at the clock.
const CLOCK_EVERY: u64 = 32;

/// A batch that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Callbacks that were ready when it began.
    pub ready: u64,
    /// Callbacks after which it gives way to others.
    pub limit: u64,
    /// When it ends at the latest, if its limit is high.
    until_ns: Option<u64>,
}

impl Batch {
    /// Whether the batch is to end, after so many callbacks. `stops_at_limit`: the CPU has something else to do
    /// (need_resched is set, or the interrupted task is not the idle task).
    #[inline]
    pub fn is_over(&self, invoked: u64, now_ns: u64, stops_at_limit: bool) -> bool {
        let is_full = invoked >= self.limit && stops_at_limit;
        let is_late =
            invoked.is_multiple_of(CLOCK_EVERY) && self.until_ns.is_some_and(|until_ns| now_ns >= until_ns);
        invoked > 0 && (is_full || is_late)
    }
}

impl Rcu {
    /// Begins a batch of the callbacks that are ready; `None` if there are none. Follow it with
    /// [`Rcu::next_callback`] until the [`Batch`] is over, then with [`Rcu::end_batch`].
    pub fn begin_batch(&mut self, now_ns: u64, cpu: usize) -> Option<Batch> {
        let this = &mut self.cpus[cpu];
        let ready = this.callbacks.ready();
        if ready == 0 {
            return None;
        }
        this.callbacks.begin_batch();
        let limit = this.blimit.max(ready.checked_shr(self.params.divisor).unwrap_or(0));
        let until_ns = (limit > TIMED_FROM).then(|| now_ns + self.params.batch_ns());
        Some(Batch { ready, limit, until_ns })
    }

    /// The batch's next callback, to be invoked now; `None` if the batch took no more.
    #[inline]
    pub fn next_callback(&mut self, cpu: usize) -> Option<Callback> {
        self.cpus[cpu].callbacks.invoke()
    }

    /// Ends the batch; answers how many callbacks it invoked. Raises the softirq again if more are ready.
    pub fn end_batch(&mut self, cpu: usize, effects: &mut Effects) -> u64 {
        let this = &mut self.cpus[cpu];
        let invoked = this.callbacks.end_batch();
        self.backlog -= invoked;
        let left = this.callbacks.len();
        if this.blimit >= self.params.max_blimit && left <= self.params.qlowmark {
            this.blimit = self.params.blimit;
        }
        if left == 0 && this.looked_at != 0 {
            this.looked_at = 0;
            this.scans_seen = self.scans;
        } else if left + self.params.qhimark < this.looked_at {
            this.looked_at = left;
        }
        if this.callbacks.ready() > 0 && !self.params.offloads {
            effects.softirq.push(cpu as u32);
        }
        invoked
    }
}

#[cfg(test)]
#[path = "tests/batch.rs"]
mod tests;
