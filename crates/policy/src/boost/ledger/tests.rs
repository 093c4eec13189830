use super::*;
use crate::SECOND_NS;
use crate::boost::{Aim, Decider, Look, Order, Settings, Vcpu};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// Steps of the model.
const STEP_NS: u64 = 10 * US;
const QUOTA_NS: u64 = 20 * MS;
const PERIOD_NS: u64 = 100 * MS;

/// Run time of the thread before the daemon starts.
const BEFORE_NS: u64 = 3 * SECOND_NS;

/// A model of Linux's CFS bandwidth control, for one thread that always wants to run and has a pCPU to itself. Its run
/// time is accounted every `tick_ns`, so it may run that much too long, and then has less left in the next period.
struct Kernel {
    held_ns: u64,
    left_ns: i64,
    is_throttled: bool,
    run_ns: u64,
    unaccounted_ns: u64,
    tick_ns: u64,
    phase_ns: u64,
    periods: u64,
}

impl Kernel {
    fn new(tick_ns: u64, phase_ns: u64) -> Kernel {
        Kernel {
            held_ns: QUOTA_NS,
            left_ns: QUOTA_NS as i64,
            is_throttled: false,
            run_ns: BEFORE_NS,
            unaccounted_ns: 0,
            tick_ns,
            phase_ns,
            periods: 0,
        }
    }

    /// Simulates the step that ends at `at_ns`.
    fn step(&mut self, at_ns: u64) {
        if !self.is_throttled {
            self.unaccounted_ns += STEP_NS;
        }
        if at_ns % self.tick_ns < STEP_NS {
            self.account();
        }
        if at_ns >= self.phase_ns && (at_ns - self.phase_ns) % PERIOD_NS < STEP_NS {
            self.periods += 1;
            self.left_ns = (self.left_ns + self.held_ns as i64).min(self.held_ns as i64);
            self.is_throttled &= self.left_ns <= 0;
        }
    }

    fn account(&mut self) {
        let ran_ns = std::mem::take(&mut self.unaccounted_ns);
        self.run_ns += ran_ns;
        self.left_ns -= ran_ns as i64;
        self.is_throttled = self.left_ns <= 0;
    }

    /// `tg_set_cfs_bandwidth`: forgets debts, and ends a throttle.
    fn write(&mut self, quota_ns: u64) {
        assert!((LEAST_NS..=QUOTA_NS).contains(&quota_ns), "{quota_ns}");
        self.account();
        (self.held_ns, self.left_ns, self.is_throttled) = (quota_ns, quota_ns as i64, false);
    }
}

/// The result of a run.
struct Ran {
    /// Run time so far, every 10 ms.
    run_ns: Vec<u64>,
    visits: u64,
    writes: u64,
    lent_ns: u64,
    held_ns: u64,
}

impl Ran {
    /// The longest run time within any second. The first period may be short and does not count.
    fn most_in_a_second_ns(&self) -> u64 {
        self.run_ns[10..].windows(101).map(|window| window[100] - window[0]).max().unwrap()
    }
}

fn settings() -> Settings {
    Settings { cap_ns: MS, debt_ns: 8 * MS, ..Settings::default() }
}

/// Runs a daemon's loop on that kernel. `open` says since when a grace period of the guest waits for the vCPU, if one
/// does.
fn run(mut kernel: Kernel, aim: Aim, look_ns: u64, seconds: u64, open: impl Fn(u64) -> Option<u64>) -> Ran {
    let mut ledger = Ledger::new(QUOTA_NS, PERIOD_NS);
    let mut decider = Decider::new(aim, settings(), 1, 0);
    let mut ran = Ran { run_ns: Vec::new(), visits: 0, writes: 0, lent_ns: 0, held_ns: 0 };
    let mut next_look_ns = 0;
    for at_ns in (0..seconds * SECOND_NS).step_by(STEP_NS as usize) {
        kernel.step(at_ns);
        if at_ns.is_multiple_of(10 * MS) {
            ran.run_ns.push(kernel.run_ns + kernel.unaccounted_ns);
        }
        if at_ns < next_look_ns.min(ledger.due_ns().unwrap_or(u64::MAX)) {
            continue;
        }
        next_look_ns = at_ns + look_ns;
        let count = ledger.wants_count(at_ns).then_some(kernel.periods);
        if let Some(quota_ns) = ledger.look(at_ns, kernel.run_ns, count) {
            kernel.write(quota_ns);
            ran.writes += 1;
        }
        let run_ns = kernel.run_ns;
        let vcpu = Vcpu {
            is_holdout: open(at_ns).is_some(),
            run_ns,
            debt_ns: ledger.debt_ns(run_ns),
            ..Vcpu::default()
        };
        let is_off = kernel.is_throttled && ledger.is_used_up(run_ns);
        let look = Look { at_ns, open_since_ns: open(at_ns), tick_ns: None, vcpus: &[vcpu] };
        for order in decider.look(&look, |_| is_off) {
            if let Order::Begin(0) = order {
                ran.visits += 1;
                kernel.write(ledger.lend(run_ns, settings().cap_ns));
                ran.writes += 1;
            }
        }
    }
    (ran.lent_ns, ran.held_ns) = (ledger.lent_ns(), kernel.held_ns);
    ran
}

/// A grace period of 30 ms begins every 31 ms.
fn long_ones(at_ns: u64) -> Option<u64> {
    (at_ns % (31 * MS) < 30 * MS).then(|| at_ns / (31 * MS) * (31 * MS) + 1)
}

#[test]
fn a_vcpu_that_is_never_waited_for_costs_no_write() {
    let ran = run(Kernel::new(4 * MS, 37 * MS), Aim::GracePeriods, 250 * US, 3, |_| None);
    assert_eq!((ran.visits, ran.writes, ran.held_ns), (0, 0, QUOTA_NS));
}

#[test]
fn what_visits_take_is_paid_back() {
    for (tick_ns, phase_ns) in [(250 * US, 0), (250 * US, 37 * MS), (MS, 37_310 * US), (4 * MS, 99 * MS)] {
        let ran = run(Kernel::new(tick_ns, phase_ns), Aim::GracePeriods, 250 * US, 10, long_ones);
        assert!(ran.visits >= 100, "{} visits", ran.visits);
        assert!(ran.lent_ns >= ran.visits * MS * 9 / 10, "{} ns lent", ran.lent_ns);
        let all_ns = ran.run_ns.last().unwrap() - BEFORE_NS;
        let due_ns = 10 * SECOND_NS / 5;
        assert!(all_ns.abs_diff(due_ns) < due_ns / 50, "ticks of {tick_ns}: {all_ns} ns of {due_ns}");
        let most_ns = ran.most_in_a_second_ns();
        // A visit begins below the debt's limit, and lasts for the cap and a tick.
        let bound_ns = SECOND_NS / 5 + settings().debt_ns + MS + tick_ns;
        assert!(most_ns <= bound_ns, "ticks of {tick_ns}: {most_ns} ns in a second");
    }
}

#[test]
fn a_grace_period_that_never_ends_is_capped() {
    let ran = run(Kernel::new(250 * US, 37 * MS), Aim::GracePeriods, 250 * US, 20, |_| Some(1));
    // Patience runs out: after 4 visits come pauses of 3, 6, ... ms, up to 1 s.
    assert!((12..=40).contains(&ran.visits), "{} visits", ran.visits);
    assert!(ran.most_in_a_second_ns() <= SECOND_NS / 5 + settings().debt_ns + MS + 250 * US);
    assert!(ran.run_ns.last().unwrap().abs_diff(BEFORE_NS + 4 * SECOND_NS) < 40 * MS);
}

#[test]
fn the_control_has_visits_of_the_same_kind() {
    let clock = Aim::Clock { per_s: 12, seed: 3 };
    let aimed = run(Kernel::new(250 * US, 37 * MS), Aim::GracePeriods, 250 * US, 10, long_ones);
    let unaimed = run(Kernel::new(250 * US, 37 * MS), clock, 250 * US, 10, |_| None);
    assert!(unaimed.visits.abs_diff(120) <= 12, "{} visits", unaimed.visits);
    let mean_ns = |ran: &Ran| ran.lent_ns / ran.visits;
    assert!(mean_ns(&aimed).abs_diff(mean_ns(&unaimed)) < MS / 4);
}

#[test]
fn the_quota_is_back_in_the_file_once_the_debt_is_paid() {
    // There is one long grace period at the start, and none afterwards.
    let ran = run(Kernel::new(MS, 37 * MS), Aim::GracePeriods, 250 * US, 3, |at_ns| {
        (at_ns < 500 * MS).then_some(1)
    });
    assert!(ran.visits > 0);
    assert_eq!(ran.held_ns, QUOTA_NS);
}

#[test]
fn nothing_is_used_up_before_it_is_known_when_periods_begin() {
    let mut ledger = Ledger::new(QUOTA_NS, PERIOD_NS);
    assert!(ledger.wants_count(0) && !ledger.is_used_up(50 * MS) && ledger.due_ns().is_none());
    assert_eq!(ledger.look(0, 0, Some(5)), None);
    assert!(!ledger.is_used_up(50 * MS));
    assert_eq!(ledger.look(MS, 0, Some(6)), None);
    assert!(ledger.is_used_up(18 * MS + 1) && !ledger.is_used_up(18 * MS));
    assert!(!ledger.wants_count(50 * MS) && ledger.wants_count(99 * MS));
}

#[test]
fn a_group_that_is_off_for_another_reason_keeps_its_quota() {
    let mut ledger = Ledger::new(QUOTA_NS, PERIOD_NS);
    ledger.look(0, 0, Some(5));
    ledger.look(MS, 0, Some(6));
    assert_eq!(ledger.lend(5 * MS, MS), 15 * MS);
    assert_eq!((ledger.lend(19_500 * US, MS), ledger.lent_ns()), (MS, 14_500 * US));
}

#[test]
fn a_group_s_debt_outlives_a_period_in_which_it_cannot_be_paid() {
    let mut ledger = Ledger::new(QUOTA_NS, PERIOD_NS);
    ledger.look(0, 0, Some(5));
    ledger.look(MS, 0, Some(6));
    assert_eq!(ledger.lend(20 * MS, MS / 2), LEAST_NS, "the kernel grants no less");
    // Something went wrong: it ran for 50 ms.
    let due_ns = ledger.due_ns().unwrap();
    assert_eq!(ledger.look(due_ns, 70 * MS, None), Some(LEAST_NS), "50 ms are owed");
    ledger.look(102 * MS, 70 * MS, Some(7));
    let quota_ns = ledger.look(ledger.due_ns().unwrap(), 71 * MS, None).unwrap();
    assert_eq!(quota_ns, LEAST_NS, "31 ms are owed");
    ledger.look(203 * MS, 72 * MS, Some(8));
    let quota_ns = ledger.look(ledger.due_ns().unwrap(), 72 * MS, None).unwrap();
    assert!((6 * MS..=8 * MS).contains(&quota_ns), "12 ms are owed: {quota_ns}");
}

#[test]
fn a_small_quota_bears_little_debt() {
    let owes_much = |quota_ns: u64, owed_ns: u64| {
        let mut ledger = Ledger::new(quota_ns, PERIOD_NS);
        ledger.debt_ns = owed_ns;
        // The group uses up the period's own quota.
        ledger.owes_much(quota_ns)
    };
    // A quota of 20 % of a CPU grants 200 ms a second, and 4 % of that is 8 ms. A quota of 3 % grants 30 ms, and 4 % of
    // that is 1.2 ms.
    assert!(!owes_much(QUOTA_NS, 8 * MS - 1) && owes_much(QUOTA_NS, 8 * MS));
    assert!(!owes_much(3 * MS, 1_200 * US - 1) && owes_much(3 * MS, 1_200 * US));
}

#[test]
fn each_period_that_was_not_looked_at_has_granted_a_quota() {
    let mut ledger = Ledger::new(QUOTA_NS, PERIOD_NS);
    ledger.look(0, 0, Some(5));
    ledger.look(MS, 0, Some(6));
    ledger.look(1001 * MS, 200 * MS, Some(16));
    assert_eq!(ledger.debt_ns(200 * MS), 0, "ten quotas in ten periods");
    // More than that is owed.
    ledger.look(2001 * MS, 430 * MS, Some(26));
    assert_eq!(ledger.debt_ns(450 * MS), 30 * MS);
}

#[test]
fn a_lowered_quota_that_was_held_for_periods_leaves_no_debt() {
    let mut ledger = Ledger::new(QUOTA_NS, PERIOD_NS);
    ledger.look(0, 0, Some(5));
    ledger.look(MS, 0, Some(6));
    ledger.lend(20 * MS, MS);
    let quota_ns = ledger.look(ledger.due_ns().unwrap(), 25 * MS, None).unwrap();
    assert!((13 * MS..=15 * MS).contains(&quota_ns), "{quota_ns}");
    // The next five periods are not seen.
    ledger.look(601 * MS, 25 * MS + 5 * quota_ns, Some(12));
    assert_eq!(ledger.debt_ns(25 * MS + 5 * quota_ns), 0);
}
