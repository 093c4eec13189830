//! How often to beat: fast while there is something to win, slowly while nothing is wrong, within a budget of CPU time.
//!
//! Source: beats of 1 ms told on-times well enough to give back 0.97 of what was lost; the daemon may take 1 % of one CPU
//! where nothing is wrong (the project's facts and its blueprint).

/// Chooses the period.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    fastest_ns: u64,
    slowest_ns: u64,
    calm_budget_permille: u64,
    busy_budget_permille: u64,
    period_ns: u64,
}

impl Pace {
    /// Between these two periods, ns; all beat threads and the main loop together within these shares of one CPU, in
    /// thousandths: one while nothing is wrong, one while there is something to win. To keep within a budget the period may
    /// grow beyond `slowest_ns`, to four times as much.
    pub fn new(fastest_ns: u64, slowest_ns: u64, calm_permille: u64, busy_permille: u64) -> Pace {
        Pace {
            fastest_ns: fastest_ns.max(1),
            slowest_ns: slowest_ns.max(fastest_ns).max(1),
            calm_budget_permille: calm_permille.max(1),
            busy_budget_permille: busy_permille.max(1),
            period_ns: slowest_ns.max(1),
        }
    }

    /// The period from now on, ns. `busy`: there are I/O tasks and vCPUs are descheduled. `spent_permille`: CPU time spent
    /// since this was last called, in thousandths of one CPU.
    pub fn next(&mut self, busy: bool, spent_permille: u64) -> u64 {
        let (base_ns, budget) = match busy {
            true => (self.fastest_ns, self.busy_budget_permille),
            false => (self.slowest_ns, self.calm_budget_permille),
        };
        // Time spent goes with the frequency: what the period would have to be for the budget.
        let fitting_ns = self.period_ns.saturating_mul(spent_permille) / budget;
        // Towards it and not at once, since time spent is measured in coarse steps.
        let eased_ns = self.period_ns.saturating_add(fitting_ns) / 2;
        self.period_ns = eased_ns.clamp(base_ns, self.slowest_ns.saturating_mul(4));
        self.period_ns
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
        let pace = Pace::new(1_000_000, 4_000_000, 10, 100);
        assert_eq!((settled(pace, true, 5_000), settled(pace, false, 5_000)), (1_000_000, 4_000_000));
    }

    #[test]
    fn the_budget_is_kept() {
        let pace = Pace::new(1_000_000, 4_000_000, 10, 100);
        for (busy, cost_ns, budget) in [(true, 200_000, 100), (false, 80_000, 10)] {
            let period_ns = settled(pace, busy, cost_ns);
            assert!(cost_ns * 1000 / period_ns <= budget + 1, "{period_ns}");
        }
        assert_eq!(settled(pace, false, 1_000_000_000), 16_000_000, "not without a limit");
    }
}
