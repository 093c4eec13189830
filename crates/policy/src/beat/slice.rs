//! The slices of a vCPU: how long it stays on, how long off, and what remains.
//!
//! No distribution is assumed. What remains after some time on comes from the slices that lasted longer than that. Beats tell
//! times only as exactly as they come (the *blur*): values that differ from the median by no more than half of that do not
//! differ, and others by as much less. And four things keep few odd values from spoiling it:
//! - a gap much shorter than gaps are (by time, so that many short ones do not pass for the rule) is spurious, and does not
//!   end a slice. It is kept all the same: if gaps get short for good, they become the rule;
//! - the longest tenth of the slices counts as no longer than the rest, or the one slice that a missed end has doubled would
//!   speak for all that come near it;
//! - one that has outlived those all the same lasts longer by up to as much as slices differ (the distance of their
//!   quartiles): nothing remains of a regular one, and much of one that ends at random;
//! - of a slice that lasts twice as long as all but that tenth nothing is known: the host has changed.

use crate::window::{Window, by_rank};

/// Slices known before anything is said about what remains: a quartile needs four.
const LEAST: usize = 4;
/// A gap under 1 / this of a gap's usual length is spurious.
const SPURIOUS_SHARE: u64 = 2;
/// A gap counts as no longer than this many usual ones, or one pause of the machine would make all others spurious. If they
/// get longer for good they still become the rule, in a few steps.
const LONGEST_USUAL: u64 = 4;
/// Slices that exceed this percentile count as no longer.
const MOST_PERCENT: u64 = 90;
/// Nothing is known of a slice of more than so many times that.
const OUTLIVED: u64 = 2;
/// Slices are alike that differ by 1 / this of their length.
const ALIKE_SHARE: u64 = 8;

/// What remains of a slice, ns. The three are quartiles: their spread is the uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Less than this remains in one case of four.
    pub low_ns: u64,
    /// As often less as more.
    pub median_ns: u64,
    /// More than this in one case of four.
    pub high_ns: u64,
    /// The slices this is known from.
    pub samples: usize,
}

/// How often a slice that has lasted some time ends soon after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odds {
    /// In so many cases it ends...
    pub ending: u64,
    /// ... of so many, at least one.
    pub of: u64,
}

impl Odds {
    /// It ends, or not, for certain.
    pub fn certain(ends: bool) -> Odds {
        Odds { ending: ends.into(), of: 1 }
    }

    /// The mean loss if the end costs so much, ns.
    pub fn loss_ns(&self, cost_ns: u64) -> u64 {
        cost_ns.saturating_mul(self.ending) / self.of.max(1)
    }
}

/// Times on and off of one vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slices {
    on_ns: Window,
    off_ns: Window,
    /// The median of gaps by time; 0 without any.
    usual_off_ns: u64,
    /// How exactly times are known: to half of this either way, ns.
    blur_ns: u64,
}

/// A value of a window without the blur. Keeps the order of values.
fn sharp(window: &Window, value_ns: u64, blur_ns: u64) -> u64 {
    let median_ns = window.quantile(50).unwrap_or(value_ns);
    let nearer_ns = value_ns.abs_diff(median_ns).saturating_sub(blur_ns / 2);
    match value_ns > median_ns {
        true => median_ns + nearer_ns,
        false => median_ns - nearer_ns,
    }
}

impl Slices {
    /// Whether a gap of this length ends a slice.
    pub fn ends_slice(&self, off_ns: u64) -> bool {
        self.off_ns.len() < LEAST || off_ns >= self.usual_off_ns / SPURIOUS_SHARE
    }

    /// Takes in a gap, whether it ends a slice or not.
    pub fn off(&mut self, off_ns: u64) {
        let known = self.off_ns.len() >= LEAST;
        let most_ns = if known { self.usual_off_ns.saturating_mul(LONGEST_USUAL).max(1) } else { u64::MAX };
        self.off_ns.push(off_ns.min(most_ns));
        self.usual_off_ns = self.off_ns.quantile_by_size(50).unwrap_or(0);
    }

    /// Takes in a slice that has ended.
    pub fn on(&mut self, on_ns: u64) {
        self.on_ns.push(on_ns);
    }

    /// From now on times are known to half of this either way, ns: beats come so often.
    pub fn set_blur(&mut self, blur_ns: u64) {
        self.blur_ns = blur_ns;
    }

    /// How many slices lasted up to this time, ns.
    fn ended_by(&self, time_ns: u64) -> usize {
        let ended = |on_ns: &u64| sharp(&self.on_ns, *on_ns, self.blur_ns) <= time_ns;
        self.on_ns.sorted().partition_point(ended)
    }

    /// What slices do not exceed, but for a tenth; `None` while too little is known.
    fn most_ns(&self) -> Option<u64> {
        self.on_quantile_ns(MOST_PERCENT)
    }

    /// The same, and that a slice of `elapsed_ns` so far can be compared with those known.
    fn most_after_ns(&self, elapsed_ns: u64) -> Option<u64> {
        self.most_ns().filter(|most_ns| elapsed_ns <= most_ns.saturating_mul(OUTLIVED))
    }

    /// What remains after `elapsed_ns` on; `None` while too little is known, and of a slice that has lasted much longer than
    /// all that are.
    pub fn remaining(&self, elapsed_ns: u64) -> Option<Remaining> {
        let left = |percent| self.remaining_at(percent, elapsed_ns);
        Some(Remaining {
            low_ns: left(25)?,
            median_ns: left(50)?,
            high_ns: left(75)?,
            samples: self.on_ns.len(),
        })
    }

    /// What remains after `elapsed_ns` on in `percent` of 100 cases at most, ns; else as [`remaining`](Self::remaining).
    pub fn remaining_at(&self, percent: u64, elapsed_ns: u64) -> Option<u64> {
        let most_ns = self.most_after_ns(elapsed_ns)?;
        if most_ns <= elapsed_ns {
            return Some(self.on_spread_ns() * percent / 100);
        }
        let left = &self.on_ns.sorted()[self.ended_by(elapsed_ns)..];
        let end_ns = by_rank(left, percent).map_or(most_ns, |on_ns| sharp(&self.on_ns, on_ns, self.blur_ns));
        Some(end_ns.min(most_ns).saturating_sub(elapsed_ns))
    }

    /// How often a slice of `elapsed_ns` so far ends within the next `within_ns`; `None` as for
    /// [`remaining`](Self::remaining).
    pub fn odds(&self, elapsed_ns: u64, within_ns: u64) -> Option<Odds> {
        let most_ns = self.most_after_ns(elapsed_ns)?;
        if most_ns <= elapsed_ns {
            let spread_ns = self.on_spread_ns().max(1);
            return Some(Odds { ending: within_ns.clamp(1, spread_ns), of: spread_ns });
        }
        // Whatever exceeds the most counts as if it ended there.
        let until_ns = elapsed_ns.saturating_add(within_ns);
        let (all, outlived) = (self.on_ns.len(), self.ended_by(elapsed_ns));
        let ended = if until_ns >= most_ns { all } else { self.ended_by(until_ns) };
        Some(Odds { ending: (ended - outlived) as u64, of: (all - outlived) as u64 })
    }

    /// The slice's length as a whole, ns; the median.
    pub fn on_median_ns(&self) -> Option<u64> {
        self.on_quantile_ns(50)
    }

    /// A length that `percent` of 100 slices do not exceed, ns.
    pub fn on_quantile_ns(&self, percent: u64) -> Option<u64> {
        let on_ns = self.on_ns.quantile(percent).filter(|_| self.on_ns.len() >= LEAST)?;
        Some(sharp(&self.on_ns, on_ns, self.blur_ns))
    }

    /// How much slices differ, ns: the distance of their quartiles; 0 while too little is known.
    pub fn on_spread_ns(&self) -> u64 {
        self.on_quantile_ns(75).zip(self.on_quantile_ns(25)).map_or(0, |(high_ns, low_ns)| high_ns - low_ns)
    }

    /// Which share of the slices is as long as the median, to an eighth of it, in thousandths; 0 while too little is known.
    pub fn alike_permille(&self) -> u32 {
        let Some(median_ns) = self.on_median_ns() else { return 0 };
        let alike = |on_ns: &&u64| on_ns.abs_diff(median_ns) <= median_ns / ALIKE_SHARE;
        let count = self.on_ns.sorted().iter().filter(alike).count();
        (count * 1000 / self.on_ns.len()) as u32
    }

    /// The length of a gap, ns; the median by time.
    pub fn off_median_ns(&self) -> Option<u64> {
        (!self.off_ns.is_empty()).then_some(self.usual_off_ns)
    }

    /// What remains of a gap of `elapsed_ns` so far in `percent` of 100 cases at most, ns; `None` if none known lasted so
    /// long.
    pub fn off_remaining_at(&self, percent: u64, elapsed_ns: u64) -> Option<u64> {
        let lasted = |off_ns: &u64| sharp(&self.off_ns, *off_ns, self.blur_ns) <= elapsed_ns;
        let left = &self.off_ns.sorted()[self.off_ns.sorted().partition_point(lasted)..];
        Some(sharp(&self.off_ns, by_rank(left, percent)?, self.blur_ns) - elapsed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn of(on: &[u64], off: &[u64]) -> Slices {
        let mut slices = Slices::default();
        on.iter().for_each(|ms| slices.on(ms * MS));
        off.iter().for_each(|ms| slices.off(ms * MS));
        slices
    }

    fn odds(ending: u64, of: u64) -> Option<Odds> {
        Some(Odds { ending, of })
    }

    #[test]
    fn a_regular_host_is_predicted_to_the_end() {
        let slices = of(&[35; 8], &[25; 8]);
        let remaining = slices.remaining(30 * MS).unwrap();
        assert_eq!((remaining.low_ns, remaining.median_ns, remaining.high_ns), (5 * MS, 5 * MS, 5 * MS));
        assert_eq!((slices.odds(30 * MS, 4 * MS), slices.odds(30 * MS, 5 * MS)), (odds(0, 8), odds(8, 8)));
        assert_eq!(slices.remaining(36 * MS).unwrap().high_ns, 0);
        assert_eq!(slices.odds(36 * MS, 0), odds(1, 1), "overdue");
        assert_eq!((slices.alike_permille(), slices.on_spread_ns()), (1000, 0));
    }

    #[test]
    fn an_irregular_one_with_its_spread() {
        let slices = of(&[10, 20, 30, 40], &[25; 4]);
        let remaining = slices.remaining(0).unwrap();
        assert_eq!((remaining.low_ns, remaining.median_ns, remaining.high_ns), (10 * MS, 20 * MS, 30 * MS));
        assert_eq!(slices.remaining(25 * MS).unwrap().low_ns, 5 * MS, "of those that last longer than 25 ms");
        assert_eq!((slices.odds(15 * MS, 5 * MS), slices.odds(15 * MS, 90 * MS)), (odds(1, 3), odds(3, 3)));
        assert_eq!((slices.alike_permille(), slices.on_spread_ns()), (250, 20 * MS));
    }

    #[test]
    fn one_survivor_does_not_speak_for_all() {
        let mut slices = of(&[35; 31], &[25; 8]);
        slices.on(500 * MS);
        assert_eq!(slices.remaining(36 * MS).unwrap().median_ns, 0);
        assert_eq!(slices.odds(36 * MS, MS), odds(1, 1));
        assert_eq!(slices.odds(30 * MS, 5 * MS), odds(32, 32));
    }

    #[test]
    fn what_differs_by_the_blur_does_not_differ() {
        let mut slices = Slices::default();
        (0..32u64).for_each(|i| slices.on(34 * MS + i * 7919 % 32 * MS / 16));
        (0..32u64).for_each(|i| slices.off(24 * MS + i * 7919 % 32 * MS / 16));
        assert!(slices.on_spread_ns() >= MS);
        slices.set_blur(2 * MS);
        let median_ns = slices.on_median_ns().unwrap();
        assert_eq!((slices.on_spread_ns(), slices.odds(34 * MS, median_ns - 34 * MS - 1)), (0, odds(0, 32)));
        assert_eq!(slices.odds(34 * MS, median_ns - 34 * MS), odds(32, 32));
        let back_ns = slices.off_remaining_at(1, 20 * MS).unwrap();
        assert_eq!(slices.off_remaining_at(99, 20 * MS), Some(back_ns));
        // What differs by more keeps its order.
        slices.on(44 * MS);
        assert_eq!(slices.on_quantile_ns(100), Some(43 * MS));
    }

    #[test]
    fn what_ends_at_random_is_not_overdue() {
        let mut slices = Slices::default();
        (1..=32).for_each(|i| slices.on(i * 10 * MS));
        // Nine in ten last up to 290 ms, and half of them 80 to 240.
        assert_eq!(slices.odds(300 * MS, 16 * MS), odds(16 * MS, 160 * MS));
        assert_eq!(slices.remaining(300 * MS).unwrap().median_ns, 80 * MS);
    }

    #[test]
    fn of_what_has_outlived_all_nothing_is_known() {
        let slices = of(&[35; 8], &[25; 8]);
        assert!(slices.remaining(70 * MS).is_some() && slices.odds(70 * MS, MS).is_some());
        assert!(slices.remaining(71 * MS).is_none() && slices.odds(71 * MS, MS).is_none());
    }

    #[test]
    fn too_little_known_is_said() {
        let slices = of(&[35; 3], &[]);
        assert_eq!(
            (slices.remaining(0), slices.odds(0, MS), slices.off_remaining_at(50, 0)),
            (None, None, None)
        );
    }

    #[test]
    fn a_short_gap_among_long_ones_is_spurious_until_it_is_the_rule() {
        let mut slices = of(&[], &[25; 8]);
        assert!(!slices.ends_slice(2 * MS) && slices.ends_slice(20 * MS));
        (0..Window::CAPACITY).for_each(|_| slices.off(5 * MS));
        assert!(slices.ends_slice(5 * MS));
    }

    #[test]
    fn a_pause_of_the_machine_makes_no_gap_spurious_and_longer_gaps_become_the_rule() {
        let mut slices = of(&[], &[25; 8]);
        slices.off(8_000 * MS);
        assert!(slices.ends_slice(25 * MS), "{:?}", slices.off_median_ns());
        (0..Window::CAPACITY).for_each(|_| slices.off(800 * MS));
        assert_eq!(slices.off_median_ns(), Some(800 * MS));
    }

    #[test]
    fn what_remains_of_a_gap_is_conditioned_on() {
        let slices = of(&[], &[10, 20, 30, 40]);
        assert_eq!(slices.off_remaining_at(50, 0), Some(20 * MS));
        assert_eq!(
            (slices.off_remaining_at(50, 25 * MS), slices.off_remaining_at(50, 40 * MS)),
            (Some(5 * MS), None)
        );
    }
}
