//! The steal readings of one vCPU, and the unit in which the kernel books steal: the *grain*.
//!
//! A KVM guest's `/proc/stat` books steal in ticks of 10 ms: a gap of 3 ms may show no growth, and one of 4 ms may show
//! 10 ms. So missing growth clears the host only of gaps longer than the grain. The grain is estimated as the greatest
//! common divisor of all growth seen: exact for ticks, and close to 0 if steal is booked in ns.
//!
//! After a live migration hosts may report wrong steal. If a reading is lower than the one before, or grew by more than
//! the time that passed, its growth is dropped, and growth counts from that reading on.

use crate::SECOND_NS;

/// Growth counts towards a late beat only if the reading before it is no older than this, ns.
const RECENT_NS: u64 = SECOND_NS;
/// The coarsest grain, 1/USER_HZ s, ns. Both readings are rounded down to it, so steal may seem to grow by this much
/// more than the time that passed.
const TICK_NS: u64 = 10_000_000;

/// The steal readings of one vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steal {
    /// Time and value of the last reading, ns.
    last: Option<(u64, u64)>,
    /// The greatest common divisor of all growth so far, ns; 0 before any growth.
    grain_ns: u64,
}

impl Steal {
    /// Takes in a reading and returns the growth since the one before, ns, or `None` if that growth is impossible.
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

    /// Whether the last reading is recent enough to serve as the base for growth at this time.
    pub(super) fn is_recent(&self, at_ns: u64) -> bool {
        self.last.is_some_and(|(then_ns, _)| at_ns.saturating_sub(then_ns) <= RECENT_NS)
    }

    /// Whether a gap this long would show as growth if the host had caused it. That takes two grains, and steal that
    /// has grown before. A grain is at most a tick: after few readings the estimate may still be a multiple of it.
    pub(super) fn would_show(&self, late_ns: u64) -> bool {
        self.grain_ns > 0 && late_ns >= 2 * self.grain_ns.min(TICK_NS)
    }

    /// Forgets the readings but keeps the grain.
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
        assert!(!Steal::default().would_show(u64::MAX), "steal that never grows shows nothing");
    }

    #[test]
    fn impossible_growth_is_dropped() {
        let mut steal = Steal::default();
        assert_eq!(steal.take(0, Some(100 * MS)), None, "no reading before it");
        assert_eq!(steal.take(20 * MS, Some(90 * MS)), None, "it fell");
        assert_eq!(steal.take(40 * MS, Some(121 * MS)), None, "it grew by more than the time that passed");
        assert_eq!(steal.take(60 * MS, Some(141 * MS)), Some(20 * MS), "growth counts again");
        assert_eq!(steal.take(61 * MS, None), None);
        assert_eq!(steal.grain_ns, 20 * MS);
        assert!(steal.is_recent(1_000 * MS) && !steal.is_recent(1_100 * MS));
    }
}
