//! How often to beat: fast while there is something to win, slowly while nothing is wrong, within a budget of CPU time.
//!
//! Source: beats of 1 ms told on-times well enough to give back 0.97 of what was lost; the daemon may take 1 % of one CPU
//! where nothing is wrong (the project's facts and its blueprint).

/// CPU time of beats, decisions and moves, thousandths of one CPU: while nothing is wrong...
const CALM_PERMILLE: u64 = 4;
/// ... and while there is something to win, for each vCPU.
const BUSY_PERMILLE: u64 = 15;
/// The period grows to so many times the slowest at the most, while nothing is wrong...
const CALM_SLOWEST: u64 = 32;
/// ... and while there is something to win: with beats any slower it is not won.
const BUSY_SLOWEST: u64 = 2;

/// Chooses the period.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    busy_permille: u64,
    fastest_ns: u64,
    slowest_ns: u64,
    period_ns: u64,
    /// There was something to win when the period was chosen.
    busy: bool,
}

impl Pace {
    /// Between these two periods, ns; beats, decisions and moves of all vCPUs together within 0.4 % of one CPU while nothing
    /// is wrong, 1.5 % of each of these vCPUs while there is something to win. To keep within that the period may grow beyond
    /// `slowest_ns`, to 32 times as much or twice: under emulation a beat costs many times what it does elsewhere.
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

    /// The period from now on, ns. `busy`: there are I/O tasks and vCPUs are descheduled. `spent_permille`: work (see
    /// [`Work`](super::Work)) since this was last called, in thousandths of one CPU.
    pub fn next(&mut self, busy: bool, spent_permille: u64) -> u64 {
        let (base_ns, most_ns, budget) = match busy {
            true => (self.fastest_ns, self.slowest_ns.saturating_mul(BUSY_SLOWEST), self.busy_permille),
            false => (self.slowest_ns, self.slowest_ns.saturating_mul(CALM_SLOWEST), CALM_PERMILLE),
        };
        // Time spent goes with the frequency: what the period would have to be for the budget.
        let fitting_ns = self.period_ns.saturating_mul(spent_permille) / budget;
        // Towards it and not at once, since time spent is measured in coarse steps.
        let eased_ns = self.period_ns.saturating_add(fitting_ns) / 2;
        (self.busy, self.period_ns) = (busy, eased_ns.clamp(base_ns, most_ns));
        self.period_ns
    }

    /// What the period is from now on if a beat is late while nothing is known to be wrong, ns: whatever it is, it is looked at
    /// more closely. Where something is, late beats are nothing new.
    pub fn hurried_ns(&self) -> u64 {
        if self.busy { self.period_ns } else { self.period_ns.min(self.slowest_ns) }
    }

    /// A beat was late.
    pub fn hurry(&mut self) {
        self.period_ns = self.hurried_ns();
    }

    /// The period now, ns.
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
    fn fast_where_it_pays_and_slow_where_nothing_is_wrong() {
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
        assert_eq!(fast.period_ns(), 1_000_000, "nothing is slowed down by it");
        let mut dear = Pace::new(2, 1_000_000, 4_000_000);
        let _: u64 = (0..50).map(|_| dear.next(true, 1_000)).sum();
        dear.hurry();
        assert_eq!(dear.period_ns(), 8_000_000, "late beats are nothing new there");
    }

    #[test]
    fn the_budget_is_kept() {
        let pace = Pace::new(2, 1_000_000, 4_000_000);
        for (busy, cost_ns, budget) in [(true, 200_000, 30), (false, 80_000, 4)] {
            let period_ns = settled(pace, busy, cost_ns);
            assert!(cost_ns * 1000 / period_ns <= budget + 1, "{period_ns}");
        }
        let limits = [false, true].map(|busy| settled(pace, busy, 1_000_000_000));
        assert_eq!(limits, [128_000_000, 8_000_000], "not without a limit");
    }
}
