//! Steal of one vCPU as it is read now and then, and how finely it is booked.
//!
//! A KVM guest's `/proc/stat` books steal in ticks of 10 ms: a gap of 3 ms shows no growth, and one of 4 ms shows 10. So that
//! steal has not grown clears the host only of gaps that are longer than the grain. The grain is the greatest common divisor
//! of all growth seen: exact for ticks, and next to nothing where steal is booked in ns.
//!
//! A reading that fell, or grew by more than the time that passed, is not believed (hosts get it wrong after a live
//! migration): growth is counted from it on.

/// Growth between two readings no further apart than this may be put down to a late beat between them, ns.
const RECENT_NS: u64 = 1_000_000_000;
/// The coarsest grain there is, 1/USER_HZ s, ns. So much may steal have grown beyond the time that passed: both readings are
/// cut to it.
const TICK_NS: u64 = 10_000_000;

/// Readings of steal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steal {
    /// When the last one was made, and what it was, ns.
    last: Option<(u64, u64)>,
    /// What all growth so far is a multiple of, ns; 0 before any.
    grain_ns: u64,
}

impl Steal {
    /// Takes in a reading; what it has grown by since the one before, ns, where that can be believed.
    pub(super) fn take(&mut self, at_ns: u64, steal_ns: Option<u64>) -> Option<u64> {
        let steal_ns = steal_ns?;
        let (then_ns, before_ns) = self.last.replace((at_ns, steal_ns))?;
        let passed_ns = at_ns.checked_sub(then_ns)?;
        let grown_ns =
            steal_ns.checked_sub(before_ns).filter(|grown| *grown <= passed_ns.saturating_add(TICK_NS))?;
        self.grain_ns = common_divisor(self.grain_ns, grown_ns);
        Some(grown_ns)
    }

    /// The last reading, ns.
    pub(super) fn last_ns(&self) -> Option<u64> {
        self.last.map(|(_, steal_ns)| steal_ns)
    }

    /// Whether the last reading is recent enough at this time that growth since then came after it.
    pub(super) fn is_recent(&self, at_ns: u64) -> bool {
        self.last.is_some_and(|(then_ns, _)| at_ns.saturating_sub(then_ns) <= RECENT_NS)
    }

    /// Whether a gap so long would show as growth if it were the host's: where steal was ever seen to grow, two grains. They
    /// are ticks at most, however few readings there were to tell by.
    pub(super) fn would_show(&self, late_ns: u64) -> bool {
        self.grain_ns > 0 && late_ns >= 2 * self.grain_ns.min(TICK_NS)
    }

    /// Forgets the readings, not the grain.
    pub(super) fn restart(&mut self) {
        self.last = None;
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_grain_is_that_of_the_readings() {
        let mut ticks = Steal::default();
        for (ms, steal_ms) in [(0, 70), (10, 70), (60, 90), (120, 120), (130, 120)] {
            ticks.take(ms * MS, Some(steal_ms * MS));
        }
        assert_eq!(ticks.grain_ns, 10 * MS);
        assert!(!ticks.would_show(19 * MS) && ticks.would_show(20 * MS));
        let mut exact = Steal::default();
        for (ms, steal_ns) in [(0, 0), (60, 24_123_457), (120, 48_456_712)] {
            exact.take(ms * MS, Some(steal_ns));
        }
        assert!(exact.would_show(MS), "{exact:?}");
        assert!(!Steal::default().would_show(u64::MAX), "where it never grows it tells nothing");
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let mut steal = Steal::default();
        assert_eq!(steal.take(0, Some(100 * MS)), None, "growth since when?");
        assert_eq!(steal.take(20 * MS, Some(90 * MS)), None, "it fell");
        assert_eq!(steal.take(40 * MS, Some(121 * MS)), None, "by more than the time that passed");
        assert_eq!(steal.take(60 * MS, Some(141 * MS)), Some(20 * MS), "and counts from there on");
        assert_eq!(steal.take(61 * MS, None), None);
        assert_eq!(steal.grain_ns, 20 * MS);
        assert!(steal.is_recent(1_000 * MS) && !steal.is_recent(1_100 * MS));
    }
}
