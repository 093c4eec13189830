//! A vCPU and its credit.
//!
//! Credits are whole numbers, 10 a millisecond, so that they can be held against those of a real Xen to the last one. Run
//! time that is not a whole number of credits is kept: no run time is lost or charged twice, however short the bursts.

use crate::sched::xen::{Mask, Priority};

/// Run time that costs one credit.
pub const CREDIT_NS: u64 = 100_000;

/// What a vCPU does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    #[default]
    Blocked,
    /// Waits in the queue of its pCPU.
    Queued,
    /// Is current on its pCPU.
    Running,
    /// Would wait, but its domain's cap is spent.
    Parked,
}

/// A vCPU.
#[derive(Clone, Debug, Default)]
pub struct Vcpu {
    /// Whose it is.
    pub domain: usize,
    /// pCPUs of the pool that it may run on.
    pub allowed: Mask,
    /// Where it is queued, runs, or was last.
    pub cpu: u32,
    /// What it does.
    pub state: State,
    /// Its credit, as of the last burn; a debt if negative.
    pub credit: i64,
    /// Up to when its run time is charged, if it runs; else minus the run time that is not charged yet. It may be half a
    /// credit ahead.
    pub charged_to_ns: i64,
    /// It is in debt as of the last accounting; else UNDER.
    pub over: bool,
    /// It has BOOST.
    pub boosted: bool,
    /// It is on its domain's active list: it earns credit.
    pub active: bool,
    /// Its domain's cap keeps it from running.
    pub parked: bool,
    /// It is to leave its pCPU.
    pub migrating: bool,
    /// It gives way to others at the next decision.
    pub yields: bool,
}

impl Vcpu {
    /// Its priority.
    pub fn priority(&self) -> Priority {
        match (self.boosted, self.over) {
            (true, _) => Priority::Boost,
            (false, false) => Priority::Under,
            (false, true) => Priority::Over,
        }
    }

    /// Charges what it, the current one, has run up to now, rounded to the nearest credit; the rest is kept.
    pub fn burn(&mut self, now_ns: u64) {
        let credit_ns = CREDIT_NS as i64;
        let ran_ns = now_ns as i64 - self.charged_to_ns;
        if ran_ns > 0 {
            let credits = (ran_ns + credit_ns / 2) / credit_ns;
            self.credit -= credits;
            self.charged_to_ns += credits * credit_ns;
        }
    }

    /// It gets a pCPU.
    pub fn enter(&mut self, now_ns: u64) {
        self.state = State::Running;
        self.charged_to_ns += now_ns as i64;
    }

    /// It leaves its pCPU, to be in that state.
    pub fn leave(&mut self, now_ns: u64, state: State) {
        self.burn(now_ns);
        self.state = state;
        self.charged_to_ns -= now_ns as i64;
    }

    /// Whether it, the current one, may go on running.
    pub fn may_go_on(&self) -> bool {
        !self.parked && !self.migrating
    }
}
