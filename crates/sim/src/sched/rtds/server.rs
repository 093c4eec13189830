//! A vCPU as a deferrable server: a budget for every period, kept while it is blocked, lost at the period's end.

use crate::sched::xen::Mask;

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Blocked,
    /// Waits in the queue.
    Queued,
    /// Is current on its pCPU.
    Running,
    /// Would wait, but its budget is spent.
    Depleted,
}

/// A vCPU.
#[derive(Clone, Debug)]
pub struct Server {
    /// pCPUs of the pool that it may run on.
    pub allowed: Mask,
    /// Where it runs or was last.
    pub cpu: u32,
    /// What it does.
    pub state: State,
    /// CPU time in each period.
    pub budget_ns: u64,
    /// Length of a period.
    pub period_ns: u64,
    /// When the period ends.
    pub deadline_ns: u64,
    /// What is left of the budget, as of the last burn.
    pub left_ns: u64,
    /// Up to when its run time is charged, while it runs.
    pub charged_to_ns: u64,
}

impl Server {
    /// Charges what it, a current one, has run up to now.
    pub fn burn(&mut self, now_ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(now_ns - self.charged_to_ns);
        self.charged_to_ns = now_ns;
    }

    /// Begins the period in which `now_ns` lies, if the last one is over; periods follow each other without a gap.
    pub fn replenish(&mut self, now_ns: u64) -> bool {
        let over = now_ns >= self.deadline_ns;
        if over {
            let periods = (now_ns - self.deadline_ns) / self.period_ns + 1;
            self.deadline_ns += periods * self.period_ns;
            self.left_ns = self.budget_ns;
        }
        over
    }
}
