//! The accounts of a group of threads under a CPU quota, while time is lent to it: what it may run now, and what it
//! owes.
//!
//! The group is controlled through a single file, its quota. Under CFS bandwidth control, a write of `q` does three
//! things at once (Linux, `tg_set_cfs_bandwidth`): a throttled group runs again; it may run `q` from now on; and it may
//! run `q` in each period that follows. So a visit is a write of the visit's length. The kernel ends the visit by
//! itself, even if the daemon has died. The kernel accepts no quota below 1 ms.
//!
//! A write also makes the kernel forget what the group has used, and leaves the wrong quota in the file. A second
//! write, shortly *before* the next period begins, corrects both: it writes the quota minus the debt. The refill at the
//! start of the period then adds nothing, and the group gains at most the time between the write and the period. That
//! time counts, like all run time: the debt is what the group has run beyond its quota, by its own clock, period by
//! period. Run time that a period leaves unused is lost, as it is in the kernel.
//!
//! The kernel's count of periods (`nr_periods` of `cpu.stat`) shows when periods begin. Periods are of equal length, so
//! each observed step of the count narrows down the moment at which they begin. After that, reading the count once a
//! period is enough.

use crate::SECOND_NS;

/// The least quota that the kernel accepts, ns (`min_cfs_quota_period` in kernel/sched/core.c).
pub const LEAST_NS: u64 = 1_000_000;
/// A new quota is written this long before its period begins, ns. This is an estimate of how late a thread wakes up.
pub const LEAD_NS: u64 = 100_000;

/// When something happened: after `from_ns`, and no later than `to_ns`.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    from_ns: u64,
    to_ns: u64,
}

/// The accounts of one group.
#[derive(Clone, Debug)]
pub struct Ledger {
    quota_ns: u64,
    period_ns: u64,
    /// When the next period begins. Unknown until the count was seen to change.
    next: Option<Bounds>,
    /// The kernel's count of periods, and when it last had this value.
    count: Option<(u64, u64)>,
    /// The group's run time when this period began.
    begin_run_ns: u64,
    /// What the group owed when this period began.
    debt_ns: u64,
    /// Whether the file already holds the next period's quota.
    is_settled: bool,
    held_ns: u64,
    /// The group's run time when the visit that is under way began.
    visit_run_ns: Option<u64>,
    lent_ns: u64,
}

impl Ledger {
    /// Accounts for a group that may run `quota_ns` in each period.
    pub fn new(quota_ns: u64, period_ns: u64) -> Ledger {
        Ledger {
            quota_ns,
            period_ns: period_ns.max(1),
            next: None,
            count: None,
            begin_run_ns: 0,
            debt_ns: 0,
            is_settled: false,
            held_ns: quota_ns,
            visit_run_ns: None,
            lent_ns: 0,
        }
    }

    /// Whether the next look should read the count of periods, because a period begins about then.
    pub fn wants_count(&self, at_ns: u64) -> bool {
        self.next.is_none_or(|next| at_ns + self.period_ns / 50 >= next.from_ns)
    }

    /// The latest time of a look that can still pay debts back in time.
    pub fn due_ns(&self) -> Option<u64> {
        let is_waiting = self.held_ns != self.quota_ns && !self.is_settled;
        self.next.filter(|_| is_waiting).map(|next| next.from_ns.saturating_sub(LEAD_NS))
    }

    /// Takes the group's run time so far, and the count of periods if it was read. Returns the quota to write, if it
    /// must change.
    pub fn look(&mut self, at_ns: u64, run_ns: u64, count: Option<u64>) -> Option<u64> {
        self.credit_missed(at_ns, run_ns, count);
        let is_due = self.due_ns().is_some_and(|due_ns| at_ns >= due_ns);
        let quota_ns = is_due.then(|| self.refill(at_ns, run_ns));
        let Some(count) = count else { return quota_ns };
        let begun = match self.count.replace((count, at_ns)) {
            Some((last, seen_ns)) if last != count => Some(Bounds { from_ns: seen_ns, to_ns: at_ns }),
            // The kernel does not count periods of an idle group, but later periods keep the phase.
            _ => self.next.filter(|next| at_ns > next.to_ns + self.period_ns / 4),
        };
        let Some(begun) = begun else { return quota_ns };
        let late = if self.held_ns != self.quota_ns && !self.is_settled && quota_ns.is_none() {
            Some(self.refill(at_ns, run_ns))
        } else {
            quota_ns
        };
        self.begin_period(at_ns, run_ns, begun);
        late
    }

    /// Lends time. Returns the quota to write: the visit's length, or what is left of the group's own quota if that is
    /// more. So a group that was off for another reason than its quota loses nothing.
    pub fn lend(&mut self, run_ns: u64, length_ns: u64) -> u64 {
        self.end_visit(run_ns);
        self.visit_run_ns = Some(run_ns);
        self.held_ns = length_ns.max(LEAST_NS).max(self.rest_ns(run_ns));
        self.held_ns
    }

    /// Whether the group has used up its quota of this period, to within 2 ms, so that the kernel may throttle it. False until
    /// it is known when periods begin.
    pub fn is_used_up(&self, run_ns: u64) -> bool {
        self.next.is_some() && self.rest_ns(run_ns) < 2 * LEAST_NS
    }

    /// What is left of the group's own quota in this period, ns.
    fn rest_ns(&self, run_ns: u64) -> u64 {
        let used_ns = run_ns.saturating_sub(self.begin_run_ns);
        self.quota_ns.saturating_sub(self.debt_ns.saturating_add(used_ns))
    }

    /// CPU time that the group has used beyond its quota, ns.
    pub fn debt_ns(&self, run_ns: u64) -> u64 {
        let used_ns = run_ns.saturating_sub(self.begin_run_ns);
        self.debt_ns.saturating_add(used_ns).saturating_sub(self.quota_ns)
    }

    /// Whether the group owes at least 4 % of what its quota grants in a second. A further visit would then noticeably
    /// raise the CPU time that it gets within a second.
    pub fn owes_much(&self, run_ns: u64) -> bool {
        let granted_ns = u128::from(self.quota_ns) * u128::from(SECOND_NS) / u128::from(self.period_ns);
        u128::from(self.debt_ns(run_ns)) * 25 >= granted_ns
    }

    /// CPU time that the group has used within finished visits, ns.
    pub fn lent_ns(&self) -> u64 {
        self.lent_ns
    }

    /// Whether the file holds a quota other than the group's own.
    pub fn is_open(&self) -> bool {
        self.held_ns != self.quota_ns
    }

    /// The quota to write for the next period: the group's own minus the debt.
    fn refill(&mut self, at_ns: u64, run_ns: u64) -> u64 {
        self.settle(run_ns);
        let lead_ns = self.next.map_or(0, |next| next.to_ns.saturating_sub(at_ns)).min(self.period_ns / 50);
        let quota_ns = if self.debt_ns <= self.quota_ns / 100 {
            // The write comes early by this much, so the group may run this much beyond its quota.
            self.debt_ns += lead_ns.min(LEAD_NS);
            self.quota_ns
        } else {
            let least_ns = LEAST_NS.min(self.quota_ns);
            self.quota_ns.saturating_sub(self.debt_ns + lead_ns).max(least_ns)
        };
        self.end_visit(run_ns);
        self.held_ns = quota_ns;
        self.is_settled = true;
        quota_ns
    }

    fn settle(&mut self, run_ns: u64) {
        self.debt_ns = self.debt_ns(run_ns);
        self.begin_run_ns = run_ns;
    }

    /// If several periods have begun since the last look at their count, as when whoever looks was kept off, each of them but
    /// the last has granted a quota.
    fn credit_missed(&mut self, at_ns: u64, run_ns: u64, count: Option<u64>) {
        let Some(((last, seen_ns), count)) = self.count.zip(count) else { return };
        // No more than there was time for.
        let most = at_ns.saturating_sub(seen_ns) / self.period_ns + 1;
        let missed = count.saturating_sub(last).min(most).saturating_sub(1);
        if missed == 0 {
            return;
        }
        let used_ns = run_ns.saturating_sub(self.begin_run_ns);
        let granted_ns = self.quota_ns.saturating_mul(missed);
        self.debt_ns = self.debt_ns.saturating_add(used_ns).saturating_sub(granted_ns);
        self.begin_run_ns = run_ns;
    }

    fn begin_period(&mut self, at_ns: u64, run_ns: u64, begun: Bounds) {
        if self.next.is_none() {
            // Earlier run time cannot be attributed to periods, so it does not count.
            self.begin_run_ns = run_ns;
        }
        if !self.is_settled {
            self.settle(run_ns);
        }
        self.is_settled = false;
        let expected = self.next.unwrap_or(begun);
        let both =
            Bounds { from_ns: expected.from_ns.max(begun.from_ns), to_ns: expected.to_ns.min(begun.to_ns) };
        // The kernel's timer may be late.
        let begun = if both.from_ns < both.to_ns { both } else { begun };
        let periods = at_ns.saturating_sub(begun.to_ns) / self.period_ns + 1;
        let later_ns = periods * self.period_ns;
        self.next = Some(Bounds { from_ns: begun.from_ns + later_ns, to_ns: begun.to_ns + later_ns });
    }

    fn end_visit(&mut self, run_ns: u64) {
        if let Some(began_ns) = self.visit_run_ns.take() {
            self.lent_ns += run_ns.saturating_sub(began_ns);
        }
    }
}

#[cfg(test)]
mod tests;
