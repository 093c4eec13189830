//! When a guest's timer ticks, as seen from outside.
//!
//! The host sees the guest's count of ticks (Linux: `jiffies`) at each look. A count is never early: the guest raises it
//! at the tick or, if its vCPU is off, later. So of all looks of the last second or two, the one that saw its count
//! soonest tells the phase best. Ticks of all CPUs of a Linux guest coincide, unless it runs with `skew_tick=1`.

use crate::SECOND_NS;

/// Frequencies that Linux can be built with (`CONFIG_HZ`).
const FREQUENCIES: [u64; 4] = [100, 250, 300, 1000];
/// Time for which counts are watched before the frequency is derived from them.
const WATCH_NS: u64 = SECOND_NS / 5;
/// After this time, the count is compared with the frequency in each second. A count that lags by up to 100 ms passes.
const PROBATION_NS: u64 = 2 * SECOND_NS;
/// A frequency is recognised if the observed one is off by at most a twentieth.
const TOLERANCE: u64 = 20;

/// The ticks of one guest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// The first look and its count.
    first: Option<(u64, u64)>,
    period_ns: Option<u64>,
    /// Least time from the tick that the first look's count would have, to a look with the same count, ns: in this
    /// second, and in the one before.
    least_ns: [Option<i64>; 2],
    /// When this second began.
    since_ns: u64,
}

impl Ticks {
    /// Takes the guest's count.
    pub fn look(&mut self, at_ns: u64, count: u64) {
        let (first_ns, first_count) = *self.first.get_or_insert((at_ns, count));
        let (elapsed_ns, counted) = (at_ns.saturating_sub(first_ns), count.wrapping_sub(first_count));
        if self.period_ns.is_none() && elapsed_ns >= WATCH_NS {
            self.period_ns = period_ns(elapsed_ns, counted);
            if self.period_ns.is_none() {
                // The guest may have been stopped meanwhile: watch it again.
                self.first = None;
            }
        }
        let Some(period_ns) = self.period_ns else { return };
        if at_ns.saturating_sub(self.since_ns) >= SECOND_NS {
            // While vCPUs are off the count lags, so a short watch may have recognised a wrong frequency.
            if elapsed_ns >= PROBATION_NS && !fits(period_ns, elapsed_ns, counted) {
                *self = Ticks { first: Some((at_ns, count)), ..Ticks::default() };
                return;
            }
            self.least_ns = [None, self.least_ns[0]];
            self.since_ns = at_ns;
        }
        let late_ns = (elapsed_ns as i64).wrapping_sub((counted as i64).wrapping_mul(period_ns as i64));
        let least_ns = &mut self.least_ns[0];
        *least_ns = Some(least_ns.map_or(late_ns, |least_ns| least_ns.min(late_ns)));
    }

    /// The tick that a visit of up to `cap_ns` has to meet: the first after `at_ns`. `None` until the ticks are known, and
    /// if ticks are so close that a visit of this length meets one in any case.
    pub fn to_meet_ns(&self, at_ns: u64, cap_ns: u64) -> Option<u64> {
        let is_rare = self.period_ns? > cap_ns - cap_ns / 4;
        self.next_ns(at_ns).filter(|_| is_rare)
    }

    /// The first tick after `at_ns`. `None` until the ticks are known.
    pub fn next_ns(&self, at_ns: u64) -> Option<u64> {
        let ((first_ns, _), period_ns) = self.first.zip(self.period_ns)?;
        let least_ns = self.least_ns.into_iter().flatten().min()?;
        let since_ns = (at_ns as i64).wrapping_sub(first_ns as i64).wrapping_sub(least_ns);
        at_ns.checked_add(period_ns - since_ns.rem_euclid(period_ns as i64) as u64)
    }
}

/// The period that fits so many ticks in that time.
fn period_ns(elapsed_ns: u64, counted: u64) -> Option<u64> {
    let periods = FREQUENCIES.map(|per_s| SECOND_NS / per_s);
    periods.into_iter().find(|period_ns| fits(*period_ns, elapsed_ns, counted))
}

fn fits(period_ns: u64, elapsed_ns: u64, counted: u64) -> bool {
    counted.saturating_mul(period_ns).abs_diff(elapsed_ns) <= elapsed_ns / TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// Looks every 300 us until `until_ns` at a guest that has ticked at `phase_ns` and then every `period_ns`, and
    /// whose count is that much late.
    fn watched(period_ns: u64, phase_ns: u64, until_ns: u64, late_ns: impl Fn(u64) -> u64) -> Ticks {
        let mut ticks = Ticks::default();
        for at_ns in (0..until_ns).step_by(300 * US as usize) {
            let seen_ns = (at_ns + 10 * period_ns).saturating_sub(phase_ns + late_ns(at_ns));
            ticks.look(at_ns, 77 + seen_ns / period_ns);
        }
        ticks
    }

    #[test]
    fn the_next_tick_is_known_to_a_look_or_less() {
        for (per_s, phase_ns) in
            [(100, 3 * MS), (250, 0), (250, 3_900 * US), (300, 1_234 * US), (1000, 700 * US)]
        {
            let period_ns = SECOND_NS / per_s;
            // Two thirds of the time the count is 9 ms late.
            let late_ns = |at_ns: u64| if (at_ns / (50 * MS)).is_multiple_of(3) { 0 } else { 9 * MS };
            let ticks = watched(period_ns, phase_ns, 3 * SECOND_NS, late_ns);
            for at_ns in (3 * SECOND_NS..3 * SECOND_NS + 10 * MS).step_by(170 * US as usize) {
                let next_ns = ticks.next_ns(at_ns).unwrap();
                assert!(next_ns > at_ns && next_ns <= at_ns + period_ns);
                let late_ns = (next_ns + 10 * period_ns - phase_ns) % period_ns;
                assert!(late_ns <= 300 * US, "{per_s} Hz: {late_ns} ns after the tick");
            }
        }
    }

    #[test]
    fn nothing_is_known_too_soon_or_of_a_count_that_is_no_tick() {
        assert_eq!(watched(4 * MS, 0, 199 * MS, |_| 0).next_ns(SECOND_NS), None);
        assert!(watched(4 * MS, 0, 201 * MS, |_| 0).next_ns(SECOND_NS).is_some());
        assert_eq!(watched(7 * MS, 0, SECOND_NS, |_| 0).next_ns(SECOND_NS), None);
        assert_eq!(watched(u64::MAX / 20, 0, SECOND_NS, |_| 0).next_ns(SECOND_NS), None);
    }

    #[test]
    fn a_count_that_a_hostile_guest_makes_up_gives_a_moment_of_the_next_period() {
        let mut ticks = watched(4 * MS, 0, SECOND_NS, |_| 0);
        for (step, count) in [0, u64::MAX, 1 << 63, (1 << 63) - 1, 5].into_iter().enumerate() {
            let at_ns = SECOND_NS + step as u64 * 300 * US;
            ticks.look(at_ns, count);
            let next_ns = ticks.next_ns(at_ns).unwrap();
            assert!(next_ns > at_ns && next_ns <= at_ns + 4 * MS);
        }
        assert_eq!(ticks.next_ns(u64::MAX), None);
    }

    #[test]
    fn a_long_visit_need_not_wait_for_a_tick() {
        let ticks = watched(4 * MS, 0, SECOND_NS, |_| 0);
        assert_eq!(ticks.to_meet_ns(SECOND_NS, 5 * MS), ticks.next_ns(SECOND_NS));
        assert_eq!(ticks.to_meet_ns(SECOND_NS, 6 * MS), None);
        assert_eq!(ticks.to_meet_ns(SECOND_NS, u64::MAX), None);
        assert_eq!(Ticks::default().to_meet_ns(SECOND_NS, MS), None);
    }

    #[test]
    fn a_frequency_that_was_mistaken_for_another_is_noticed() {
        // The count lags by 34 ms when the first watch ends, so 300 Hz look like 250 Hz.
        let late_ns = |at_ns| if (150 * MS..=SECOND_NS).contains(&at_ns) { 34 * MS } else { 0 };
        let period_ns = SECOND_NS / 300;
        assert_eq!(watched(period_ns, 0, SECOND_NS, late_ns).period_ns, Some(4 * MS));
        assert_eq!(watched(period_ns, 0, 4 * SECOND_NS, late_ns).period_ns, Some(period_ns));
    }

    #[test]
    fn what_a_guest_did_long_ago_does_not_count() {
        let mut ticks = watched(4 * MS, 0, SECOND_NS, |_| 0);
        // It was paused for 1.5 ms, as seen by its own clock.
        for at_ns in (SECOND_NS..4 * SECOND_NS).step_by(300 * US as usize) {
            ticks.look(at_ns, 77 + 10 + (at_ns - 1_500 * US) / (4 * MS));
        }
        let late_ns = ticks.next_ns(4 * SECOND_NS).unwrap() % (4 * MS);
        assert!((1_500 * US..=1_800 * US).contains(&late_ns), "{late_ns}");
    }
}
