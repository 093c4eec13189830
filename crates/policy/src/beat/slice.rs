//! The past slices and gaps of a vCPU, and what they predict: how much of the current slice or gap remains.
//!
//! The predictions assume no distribution. What remains of a slice is estimated from the past slices that lasted
//! longer. Beats show times only to within a period (the *blur*), so every value is moved towards the median by half
//! the blur, but not beyond it: values that differ by less do not differ. Four rules keep a few odd values from
//! spoiling the estimate:
//! - A gap under half the usual length is spurious and does not end a slice. The usual length is the median by time, so
//!   that many short gaps do not outvote a few long ones. Spurious gaps are kept: if gaps get short for good, short
//!   becomes the usual length.
//! - Slices above the 90th percentile count as that long. Otherwise one slice, doubled because its end was missed,
//!   would predict the end of every slice that outlives the others.
//! - A slice that outlives that percentile can run longer by at most the spread between slices (the distance of their
//!   quartiles): nothing remains of a regular slice, and much of one that ends at random.
//! - A slice of more than twice that percentile has no prediction: the host's behaviour must have changed.

use crate::window::{Window, by_rank};

/// Slices needed for a prediction: quartiles need four.
const LEAST: usize = 4;
/// A gap under 1 / this of the usual length is spurious.
const SPURIOUS_SHARE: u64 = 2;
/// A gap counts as at most this many times the usual length. Otherwise one pause of the machine would make all other
/// gaps spurious. If gaps get longer for good, the usual length follows in a few steps.
const LONGEST_USUAL: u64 = 4;
/// Slices longer than this percentile count as that long.
const MOST_PERCENT: u64 = 90;
/// A slice longer than that percentile times this has no prediction.
const OUTLIVED: u64 = 2;
/// A slice that differs from the median by at most 1 / this of it is like the median.
const ALIKE_SHARE: u64 = 8;

/// The odds that a slice ends soon: in `ending` of `of` cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odds {
    /// Cases in which it ends.
    pub ending: u64,
    /// All cases, at least one.
    pub of: u64,
}

impl Odds {
    /// The slice certainly ends, or certainly does not.
    pub fn certain(ends: bool) -> Odds {
        Odds { ending: ends.into(), of: 1 }
    }

    /// The expected loss, ns, if the end costs `cost_ns`.
    pub fn loss_ns(&self, cost_ns: u64) -> u64 {
        cost_ns.saturating_mul(self.ending) / self.of.max(1)
    }
}

/// The slices and gaps of one vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slices {
    on_ns: Window,
    off_ns: Window,
    /// The usual length of a gap, ns: the median by time; 0 before the first gap.
    usual_off_ns: u64,
    /// How exactly times are known, ns: to half of this either way.
    blur_ns: u64,
}

/// A window's value with the blur taken off: moved towards the median by up to half the blur. Keeps the order of
/// values.
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

    /// Sets the blur, ns: from now on times are known to within half of this either way.
    pub fn set_blur(&mut self, blur_ns: u64) {
        self.blur_ns = blur_ns;
    }

    /// Number of slices that lasted no longer than this, ns.
    fn ended_by(&self, time_ns: u64) -> usize {
        let ended = |on_ns: &u64| sharp(&self.on_ns, *on_ns, self.blur_ns) <= time_ns;
        self.on_ns.sorted().partition_point(ended)
    }

    /// The length that nine in ten slices do not exceed, ns; `None` while too little is known, and for a slice whose
    /// length so far, `elapsed_ns`, is beyond comparison.
    fn most_after_ns(&self, elapsed_ns: u64) -> Option<u64> {
        self.on_quantile_ns(MOST_PERCENT).filter(|most_ns| elapsed_ns <= most_ns.saturating_mul(OUTLIVED))
    }

    /// The most that remains of a slice after `elapsed_ns` in `percent` of 100 cases, ns; `None` while too little is
    /// known, and if the slice is far longer than all known ones.
    pub fn remaining_at(&self, percent: u64, elapsed_ns: u64) -> Option<u64> {
        let most_ns = self.most_after_ns(elapsed_ns)?;
        if most_ns <= elapsed_ns {
            return Some(self.on_spread_ns() * percent / 100);
        }
        let left = &self.on_ns.sorted()[self.ended_by(elapsed_ns)..];
        let end_ns = by_rank(left, percent).map_or(most_ns, |on_ns| sharp(&self.on_ns, on_ns, self.blur_ns));
        Some(end_ns.min(most_ns).saturating_sub(elapsed_ns))
    }

    /// The odds that a slice ends between `elapsed_ns` and `within_ns` later; `None` as for
    /// [`remaining_at`](Self::remaining_at).
    pub fn odds(&self, elapsed_ns: u64, within_ns: u64) -> Option<Odds> {
        let most_ns = self.most_after_ns(elapsed_ns)?;
        if most_ns <= elapsed_ns {
            let spread_ns = self.on_spread_ns().max(1);
            return Some(Odds { ending: within_ns.clamp(1, spread_ns), of: spread_ns });
        }
        // Slices longer than `most_ns` count as that long.
        let until_ns = elapsed_ns.saturating_add(within_ns);
        let (all, outlived) = (self.on_ns.len(), self.ended_by(elapsed_ns));
        let ended = if until_ns >= most_ns { all } else { self.ended_by(until_ns) };
        Some(Odds { ending: (ended - outlived) as u64, of: (all - outlived) as u64 })
    }

    /// The median length of a slice, ns.
    pub fn on_median_ns(&self) -> Option<u64> {
        self.on_quantile_ns(50)
    }

    /// The length that `percent` of 100 slices do not exceed, ns.
    pub fn on_quantile_ns(&self, percent: u64) -> Option<u64> {
        let on_ns = self.on_ns.quantile(percent).filter(|_| self.on_ns.len() >= LEAST)?;
        Some(sharp(&self.on_ns, on_ns, self.blur_ns))
    }

    /// The spread between slices, ns: the distance of their quartiles; 0 while too little is known.
    pub fn on_spread_ns(&self) -> u64 {
        self.on_quantile_ns(75).zip(self.on_quantile_ns(25)).map_or(0, |(high_ns, low_ns)| high_ns - low_ns)
    }

    /// The share of slices within an eighth of the median, in thousandths; 0 while too little is known.
    pub fn alike_permille(&self) -> u32 {
        let Some(median_ns) = self.on_median_ns() else { return 0 };
        let alike = |on_ns: &&u64| on_ns.abs_diff(median_ns) <= median_ns / ALIKE_SHARE;
        let count = self.on_ns.sorted().iter().filter(alike).count();
        (count * 1000 / self.on_ns.len()) as u32
    }

    /// The usual length of a gap, ns: the median by time. `None` before the first gap.
    pub fn off_median_ns(&self) -> Option<u64> {
        (!self.off_ns.is_empty()).then_some(self.usual_off_ns)
    }

    /// The most that remains of a gap after `elapsed_ns` in `percent` of 100 cases, ns; `None` if no known gap lasted
    /// that long.
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

    fn quartiles(slices: &Slices, elapsed_ns: u64) -> [Option<u64>; 3] {
        [25, 50, 75].map(|percent| slices.remaining_at(percent, elapsed_ns))
    }

    fn odds(ending: u64, of: u64) -> Option<Odds> {
        Some(Odds { ending, of })
    }

    #[test]
    fn a_regular_host_is_predicted_to_the_end() {
        let slices = of(&[35; 8], &[25; 8]);
        assert_eq!(quartiles(&slices, 30 * MS), [Some(5 * MS); 3]);
        assert_eq!((slices.odds(30 * MS, 4 * MS), slices.odds(30 * MS, 5 * MS)), (odds(0, 8), odds(8, 8)));
        assert_eq!(slices.remaining_at(75, 36 * MS), Some(0));
        assert_eq!(slices.odds(36 * MS, 0), odds(1, 1), "overdue");
        assert_eq!((slices.alike_permille(), slices.on_spread_ns()), (1000, 0));
    }

    #[test]
    fn an_irregular_host_is_predicted_with_its_spread() {
        let slices = of(&[10, 20, 30, 40], &[25; 4]);
        assert_eq!(quartiles(&slices, 0), [Some(10 * MS), Some(20 * MS), Some(30 * MS)]);
        assert_eq!(slices.remaining_at(25, 25 * MS), Some(5 * MS), "only slices longer than 25 ms count");
        assert_eq!((slices.odds(15 * MS, 5 * MS), slices.odds(15 * MS, 90 * MS)), (odds(1, 3), odds(3, 3)));
        assert_eq!((slices.alike_permille(), slices.on_spread_ns()), (250, 20 * MS));
    }

    #[test]
    fn one_long_slice_does_not_set_the_prediction() {
        let mut slices = of(&[35; 31], &[25; 8]);
        slices.on(500 * MS);
        assert_eq!(slices.remaining_at(50, 36 * MS), Some(0));
        assert_eq!(slices.odds(36 * MS, MS), odds(1, 1));
        assert_eq!(slices.odds(30 * MS, 5 * MS), odds(32, 32));
    }

    #[test]
    fn differences_within_the_blur_vanish() {
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
        // Larger differences keep their order.
        slices.on(44 * MS);
        assert_eq!(slices.on_quantile_ns(100), Some(43 * MS));
    }

    #[test]
    fn a_slice_that_ends_at_random_is_never_overdue() {
        let mut slices = Slices::default();
        (1..=32).for_each(|i| slices.on(i * 10 * MS));
        // Nine in ten slices last at most 290 ms, and half of all 80 to 240 ms.
        assert_eq!(slices.odds(300 * MS, 16 * MS), odds(16 * MS, 160 * MS));
        assert_eq!(slices.remaining_at(50, 300 * MS), Some(80 * MS));
    }

    #[test]
    fn a_slice_that_outlived_all_others_has_no_prediction() {
        let slices = of(&[35; 8], &[25; 8]);
        assert!(slices.remaining_at(50, 70 * MS).is_some() && slices.odds(70 * MS, MS).is_some());
        assert!(slices.remaining_at(50, 71 * MS).is_none() && slices.odds(71 * MS, MS).is_none());
    }

    #[test]
    fn too_few_slices_give_no_prediction() {
        let slices = of(&[35; 3], &[]);
        assert_eq!(
            (slices.remaining_at(50, 0), slices.odds(0, MS), slices.off_remaining_at(50, 0)),
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
    fn the_rest_of_a_gap_is_estimated_from_longer_gaps() {
        let slices = of(&[], &[10, 20, 30, 40]);
        assert_eq!(slices.off_remaining_at(50, 0), Some(20 * MS));
        assert_eq!(
            (slices.off_remaining_at(50, 25 * MS), slices.off_remaining_at(50, 40 * MS)),
            (Some(5 * MS), None)
        );
    }
}
