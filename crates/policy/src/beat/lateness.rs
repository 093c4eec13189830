//! How late a beat must be to mean a gap: learnt from how late beats are, where half of them are on time.
//!
//! The median of *all* beats is followed, those after gaps too, for a percentile of what passed for ordinary runs away on a
//! busy host: noise of 0.3 ms makes gaps of 1.2 ms ordinary, those make gaps of 4 ms ordinary, and in the end all are. The
//! median stands while more than half of the beats are on time, whatever the others are.
//!
//! Source: under emulation beats are late by 0.07 to 0.17 ms in the median, 0.2 to 0.5 ms in the 99th percentile and 1 to
//! 2.5 ms in the 99.9th (the project's facts); on a quiet KVM guest by far less.

use super::frugal::Frugal;

/// Shortest gap that is looked for, ns: shorter ones cost less than a move. Gaps shorter than a period hide between beats.
const FINEST_NS: u64 = 1_000_000;
/// A beat later than this is a gap in any case, ns: no timer is so late by itself. A threshold that published code had (9 ms)
/// missed slices of less.
const LATEST_NS: u64 = 5_000_000;
/// A gap is later than so many medians: beyond the 99.9th percentile under emulation.
const MARGIN: u64 = 8;
/// An ordinary beat is no later than so many medians.
const ORDINARY: u64 = 2;

/// A beat that is later than this, ns, may mean a gap, and is worth a reading of steal and of the beat thread's run delay.
pub fn grain_ns(period_ns: u64) -> u64 {
    period_ns.min(FINEST_NS)
}

/// Lateness of a vCPU's beats.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    median: Frugal,
}

impl Lateness {
    /// Takes in a beat, late or not, but for those that the host is known to have delayed.
    pub fn learn(&mut self, late_ns: u64) {
        self.median.learn(late_ns);
    }

    /// A beat later than this is a gap, ns: eight times what it is in the median, and from the [`grain_ns`] of its period to
    /// 5 ms.
    pub fn threshold_ns(&self, period_ns: u64) -> u64 {
        MARGIN.saturating_mul(self.median.ns()).clamp(grain_ns(period_ns), LATEST_NS)
    }

    /// What ordinary beats do not exceed, ns.
    pub fn ordinary_ns(&self) -> u64 {
        ORDINARY.saturating_mul(self.median.ns()).min(LATEST_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn the_threshold_follows_what_is_ordinary_between_its_bounds() {
        for (late_ns, period_ns, threshold_ns) in [
            (0, MS, MS),
            (100 * US, MS, MS),
            (100 * US, 16 * MS, MS),
            (20 * US, 200 * US, 200 * US),
            (300 * US, MS, 2_400 * US),
            (30 * MS, MS, 5 * MS),
        ] {
            let mut lateness = Lateness::default();
            (0..2_000).for_each(|_| lateness.learn(late_ns));
            assert_eq!(lateness.threshold_ns(period_ns), threshold_ns, "{late_ns} {period_ns}");
        }
    }

    #[test]
    fn late_beats_never_make_late_beats_ordinary() {
        let mut lateness = Lateness::default();
        let (mut gaps, mut long) = (0, 0);
        for i in 0..20_000u64 {
            let noise_ns = i * 7919 % 300 * US;
            // One in ten is late, by 1.2, 4 and 24 ms in turns.
            let late_ns =
                if i % 10 == 9 { [1_200 * US, 4 * MS, 24 * MS][(i / 10 % 3) as usize] } else { noise_ns };
            long += u64::from(late_ns == 24 * MS);
            gaps += u64::from(late_ns == 24 * MS && late_ns > lateness.threshold_ns(MS));
            lateness.learn(late_ns);
            assert!(lateness.threshold_ns(MS) <= 2_400 * US, "{i}: {lateness:?}");
        }
        assert_eq!((gaps, long), (666, 666));
    }

    #[test]
    fn one_outlier_changes_little() {
        let mut lateness = Lateness::default();
        (0..500).for_each(|_| lateness.learn(300 * US));
        lateness.learn(1_000 * MS);
        assert!(lateness.ordinary_ns() <= 640 * US, "{lateness:?}");
        lateness.learn(300 * US);
        assert_eq!(lateness.ordinary_ns(), 600 * US);
    }
}
