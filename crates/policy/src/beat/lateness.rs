//! How late a beat must be to count as a gap. The threshold is learnt from the beats.
//!
//! It follows the lower quartile of all beats, also of those after gaps. Only beats that the host delayed, as steal shows, are left
//! out. A percentile of "ordinary" beats alone
//! would run away on a busy host: noise of 0.3 ms makes gaps of 1.2 ms ordinary, those make gaps of 4 ms ordinary, and
//! so on. The quartile stays put while more than a quarter of the beats are on time. The median is not enough: in a
//! tuning run under QEMU without KVM, which is not kept, it rose until most absences of 4 ms were taken for ordinary lateness.
//!
//! Source: measured under emulation, beats are late by 0.07 to 0.17 ms at the median, 0.2 to 0.5 ms at the 99th
//! percentile and 1 to 2.5 ms at the 99.9th; in a quiet KVM guest by far less.

use super::frugal::LowerQuartile;

/// The shortest gap looked for, ns: a shorter one costs less than a move. Gaps shorter than a period fall between
/// beats.
const FINEST_NS: u64 = 1_000_000;
/// A beat later than this is always a gap, ns: no timer is that late by itself. vMigrater's published code uses 9 ms,
/// and so misses shorter gaps.
const LATEST_NS: u64 = 5_000_000;
/// The threshold for a gap, in lower quartiles: near the 99.9th percentile under emulation.
const MARGIN: u64 = 12;
/// The most lateness of an ordinary beat, in lower quartiles.
const ORDINARY: u64 = 3;

/// A beat later than this, ns, may mean a gap, and is worth a reading of steal and of the beat thread's run delay.
pub fn grain_ns(period_ns: u64) -> u64 {
    period_ns.min(FINEST_NS)
}

/// Lateness of a vCPU's beats.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    quartile: LowerQuartile,
}

impl Lateness {
    /// Takes in a beat's lateness. Leave out beats that the host is known to have delayed.
    pub fn learn(&mut self, late_ns: u64) {
        self.quartile.learn(late_ns);
    }

    /// A beat later than this is a gap, ns: twelve times the lower quartile, but at least [`grain_ns`] and at most 5 ms.
    pub fn threshold_ns(&self, period_ns: u64) -> u64 {
        MARGIN.saturating_mul(self.quartile.ns()).clamp(grain_ns(period_ns), LATEST_NS)
    }

    /// The most lateness of an ordinary beat, ns.
    pub fn ordinary_ns(&self) -> u64 {
        ORDINARY.saturating_mul(self.quartile.ns()).min(LATEST_NS)
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
            (100 * US, MS, 1_200 * US),
            (100 * US, 16 * MS, 1_200 * US),
            (15 * US, 200 * US, 200 * US),
            (300 * US, MS, 3_600 * US),
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
            // One in ten is late, by 1.2, 4 and 24 ms in turn.
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
        assert!(lateness.ordinary_ns() <= 930 * US, "{lateness:?}");
        lateness.learn(300 * US);
        assert_eq!(lateness.ordinary_ns(), 900 * US);
    }
}
