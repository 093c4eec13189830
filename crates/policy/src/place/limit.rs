//! How often a task may be moved: a bucket of moves that fills with time.
//!
//! Moves may take a twentieth of a task's time at most, so that a task whose working set is dear to move is moved seldom. Of a
//! full bucket half is kept for moves that must be: what only would be better waits, what is about to be caught does not.

use super::Settings;

/// Moves may cost 1 / this of the time.
const COST_SHARE: u64 = 20;

/// The bucket of one task. It holds time: a move takes the time of one move out.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    each_ns: u64,
    held_ns: u64,
    filled_ns: u64,
}

impl Limit {
    /// `per_s` moves a second at most, at least one, for a task whose move costs so much, ns; [`Settings::BURST`] at once.
    /// Full at `now_ns`.
    pub fn new(per_s: u64, cost_ns: u64, now_ns: u64) -> Limit {
        let each_ns = (1_000_000_000 / per_s.clamp(1, 1_000_000_000)).max(cost_ns.saturating_mul(COST_SHARE));
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

    /// Whether a move is left; takes it. One that is not `urgent` is left only while more than half of the bucket is.
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
    fn what_is_dear_to_move_is_moved_seldom() {
        let mut limit = Limit::new(1_000, 5_000_000, 0);
        let taken = (0..1_000_000).filter(|us| limit.take(us * 1_000, true)).count();
        assert_eq!(taken, 17, "10 a second and the burst");
    }

    #[test]
    fn half_is_kept_for_what_must_be() {
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
        assert!(!limit.take(999_999_999, true) && limit.take(1_000_000_000, true));
    }
}
