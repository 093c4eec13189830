//! Limits how often a task may be moved: a token bucket per task.
//!
//! Moves may take at most a twentieth of a task's time, so a task with a large working set is moved seldom. Half of a
//! full bucket is reserved for urgent moves: a task about to be caught may move when one that merely gains must wait.

use super::Settings;
use crate::SECOND_NS;

/// Moves may take 1 / this of the time.
const COST_SHARE: u64 = 20;

/// The bucket of one task. It holds time; each move takes out `each_ns`.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    each_ns: u64,
    held_ns: u64,
    filled_ns: u64,
}

impl Limit {
    /// Allows `per_s` moves a second (at least one), fewer if a move costs the task more than that leaves, and
    /// [`Settings::BURST`] at once. The bucket is full at `now_ns`.
    pub fn new(per_s: u64, cost_ns: u64, now_ns: u64) -> Limit {
        let each_ns = (SECOND_NS / per_s.clamp(1, SECOND_NS)).max(cost_ns.saturating_mul(COST_SHARE));
        let mut limit = Limit { each_ns, held_ns: 0, filled_ns: now_ns };
        limit.held_ns = limit.most_ns();
        limit
    }

    fn most_ns(&self) -> u64 {
        self.each_ns.saturating_mul(Settings::BURST)
    }

    fn fill(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.filled_ns);
        self.held_ns = self.held_ns.saturating_add(passed_ns).min(self.most_ns());
        self.filled_ns = self.filled_ns.max(now_ns);
    }

    /// Takes a move out if there is one, and returns whether there was. A move that is not `urgent` needs a bucket more
    /// than half full.
    pub fn take(&mut self, now_ns: u64, urgent: bool) -> bool {
        self.fill(now_ns);
        let left = self.held_ns >= self.each_ns && (urgent || self.held_ns > self.most_ns() / 2);
        if left {
            self.held_ns -= self.each_ns;
        }
        left
    }

    /// The clock was set back to `now_ns`.
    pub fn rebase(&mut self, now_ns: u64) {
        self.filled_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_the_rate_and_the_burst() {
        let mut limit = Limit::new(100, 0, 0);
        let taken = (0..1_000_000).filter(|us| limit.take(us * 1_000, true)).count();
        assert_eq!(taken, 107);
    }

    #[test]
    fn a_task_that_is_costly_to_move_is_moved_seldom() {
        let mut limit = Limit::new(1_000, 5_000_000, 0);
        let taken = (0..1_000_000).filter(|us| limit.take(us * 1_000, true)).count();
        assert_eq!(taken, 17, "10 a second and the burst");
    }

    #[test]
    fn half_is_reserved_for_urgent_moves() {
        let mut limit = Limit::new(1, 0, 0);
        let voluntary = (0..10).filter(|_| limit.take(0, false)).count();
        let urgent = (0..10).filter(|_| limit.take(0, true)).count();
        assert_eq!((voluntary, urgent), (4, 4));
    }

    #[test]
    fn time_that_goes_back_fills_nothing() {
        let mut limit = Limit::new(1, 0, 5_000_000_000);
        (0..Settings::BURST).for_each(|_| assert!(limit.take(5_000_000_000, true)));
        assert!(!limit.take(0, true) && !limit.take(5_000_000_000, true));
        limit.rebase(0);
        assert!(!limit.take(SECOND_NS - 1, true) && limit.take(SECOND_NS, true));
    }
}
