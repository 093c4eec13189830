//! How often to beat, within a budget of CPU time: fast (*busy*) while there are I/O tasks and vCPUs are descheduled,
//! and slowly (*calm*) otherwise.
//!
//! Source: beats of 1 ms predict slices well enough to recover 97 % of the lost I/O throughput, measured on real
//! guests. The daemon's whole budget in calm times is 1 % of one CPU.

/// CPU time of beats, decisions and moves in calm times, thousandths of one CPU...
const CALM_PERMILLE: u64 = 4;
/// ... and in busy times, for each vCPU.
const BUSY_PERMILLE: u64 = 15;
/// In calm times the period grows to at most this many times the slowest...
const CALM_SLOWEST: u64 = 32;
/// ... and in busy times to at most this many: slower beats predict too little to be of use.
const BUSY_SLOWEST: u64 = 2;

/// Chooses the period.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    busy_permille: u64,
    fastest_ns: u64,
    slowest_ns: u64,
    period_ns: u64,
    /// Whether the period was chosen for a busy time.
    busy: bool,
}

impl Pace {
    /// Chooses between these two periods, ns. Beats, decisions and moves of all vCPUs together may take 0.4 % of one
    /// CPU in calm times, and 1.5 % of each vCPU in busy times. To keep that budget the period may exceed `slowest_ns`,
    /// by a factor of 32 (calm) or 2 (busy): under emulation a beat costs many times what it costs elsewhere.
    pub fn new(vcpus: usize, fastest_ns: u64, slowest_ns: u64) -> Pace {
        let busy_permille = BUSY_PERMILLE * vcpus.max(1) as u64;
        Pace {
            busy_permille,
            fastest_ns: fastest_ns.max(1),
            slowest_ns: slowest_ns.max(fastest_ns).max(1),
            period_ns: slowest_ns.max(1),
            busy: false,
        }
    }

    /// Chooses the next period, ns. `busy`: there are I/O tasks, and vCPUs are descheduled. `spent_permille`: work (see
    /// [`Work`](super::Work)) since the last call, in thousandths of one CPU.
    pub fn next(&mut self, busy: bool, spent_permille: u64) -> u64 {
        let (base_ns, most_ns, budget) = match busy {
            true => (self.fastest_ns, self.slowest_ns.saturating_mul(BUSY_SLOWEST), self.busy_permille),
            false => (self.slowest_ns, self.slowest_ns.saturating_mul(CALM_SLOWEST), CALM_PERMILLE),
        };
        // CPU time is proportional to the frequency, so this period would just meet the budget.
        let fitting_ns = self.period_ns.saturating_mul(spent_permille) / budget;
        // Go half the way only: CPU time is measured in coarse steps.
        let eased_ns = self.period_ns.saturating_add(fitting_ns) / 2;
        (self.busy, self.period_ns) = (busy, eased_ns.clamp(base_ns, most_ns));
        self.period_ns
    }

    /// The period to use after a late beat, ns. In calm times a late beat calls for a closer look, with at most the
    /// slowest period. In busy times late beats are expected, and the period stays.
    pub fn hurried_ns(&self) -> u64 {
        if self.busy { self.period_ns } else { self.period_ns.min(self.slowest_ns) }
    }

    /// Takes in that a beat was late.
    pub fn hurry(&mut self) {
        self.period_ns = self.hurried_ns();
    }

    /// The current period, ns.
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(mut pace: Pace, busy: bool, cost_ns: u64) -> u64 {
        (0..50).for_each(|_| {
            let spent = cost_ns * 1000 / pace.period_ns();
            pace.next(busy, spent);
        });
        pace.period_ns()
    }

    #[test]
    fn fast_in_busy_times_and_slow_in_calm_ones() {
        let pace = Pace::new(2, 1_000_000, 4_000_000);
        assert_eq!((settled(pace, true, 5_000), settled(pace, false, 5_000)), (1_000_000, 4_000_000));
    }

    #[test]
    fn a_late_beat_makes_it_hurry_for_a_while() {
        let mut pace = Pace::new(2, 1_000_000, 4_000_000);
        let _: u64 = (0..50).map(|_| pace.next(false, 100)).sum();
        assert_eq!(pace.period_ns(), 128_000_000);
        pace.hurry();
        assert_eq!(pace.period_ns(), 4_000_000);
        assert!(pace.next(false, 100) > 4_000_000);
        let mut fast = Pace::new(2, 1_000_000, 4_000_000);
        let _: u64 = (0..50).map(|_| fast.next(true, 1)).sum();
        fast.hurry();
        assert_eq!(fast.period_ns(), 1_000_000, "a late beat never slows the pace down");
        let mut costly = Pace::new(2, 1_000_000, 4_000_000);
        let _: u64 = (0..50).map(|_| costly.next(true, 1_000)).sum();
        costly.hurry();
        assert_eq!(costly.period_ns(), 8_000_000, "late beats are expected in busy times");
    }

    #[test]
    fn the_budget_is_kept() {
        let pace = Pace::new(2, 1_000_000, 4_000_000);
        for (busy, cost_ns, budget) in [(true, 200_000, 30), (false, 80_000, 4)] {
            let period_ns = settled(pace, busy, cost_ns);
            assert!(cost_ns * 1000 / period_ns <= budget + 1, "{period_ns}");
        }
        let limits = [false, true].map(|busy| settled(pace, busy, crate::SECOND_NS));
        assert_eq!(limits, [128_000_000, 8_000_000], "the period has a limit");
    }
}
