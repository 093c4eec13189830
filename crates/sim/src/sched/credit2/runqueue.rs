//! A runqueue of several pCPUs, and its vCPUs' credit.

use super::params::{CREDIT_NS, LEAST_NS};
use crate::sched::xen::Mask;

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Blocked,
    /// Waits in its runqueue.
    Queued,
    /// Is current on its pCPU.
    Running,
}

/// A vCPU.
#[derive(Clone, Debug)]
pub struct Vcpu {
    /// Share of the CPU relative to others.
    pub weight: i64,
    /// pCPUs of its runqueue that it may run on.
    pub allowed: Mask,
    /// Its runqueue.
    pub queue: usize,
    /// Where it runs or was last.
    pub cpu: u32,
    /// What it does.
    pub state: State,
    /// Its credit, as of the last burn.
    pub credit: i64,
    /// Run time x weight that was too little for a credit.
    residual: i64,
    /// Up to when its run time is charged, while it runs.
    pub charged_to_ns: u64,
    /// It gives way to others at the next decision.
    pub yields: bool,
}

impl Vcpu {
    /// A blocked one with the credit of a new one.
    pub fn new(weight: i64, allowed: Mask, queue: usize, cpu: u32) -> Vcpu {
        let state = State::Blocked;
        let (credit, residual, charged_to_ns, yields) = (CREDIT_NS, 0, 0, false);
        Vcpu { weight, allowed, queue, cpu, state, credit, residual, charged_to_ns, yields }
    }

    /// Charges what it, a current one, has run up to now. Exact: what is no whole credit is kept.
    pub fn burn(&mut self, now_ns: u64, most_weight: i64) {
        let ran_ns = (now_ns - self.charged_to_ns) as i64;
        let owed = ran_ns * most_weight + self.residual;
        self.credit -= owed / self.weight;
        self.residual = owed % self.weight;
        self.charged_to_ns = now_ns;
    }

    /// Run time that costs so much credit.
    pub fn time_ns(&self, credit: i64, most_weight: i64) -> i64 {
        credit * self.weight / most_weight
    }

    /// Its part in a reset of so many times the initial credit.
    pub fn reset(&mut self, times: i64) {
        self.credit = (self.credit + times * CREDIT_NS).min(CREDIT_NS + LEAST_NS);
    }
}

/// A runqueue.
#[derive(Clone, Debug)]
pub struct Runqueue {
    /// Its pCPUs.
    pub cpus: Mask,
    /// Those that idle.
    pub idle: Mask,
    /// Those that were interrupted and have not decided yet.
    pub tickled: Mask,
    /// Who waits; most credit first, first come first among equals.
    pub waiting: Vec<u32>,
    /// All vCPUs that belong to it.
    pub members: Vec<u32>,
    /// The most weight among them.
    pub most_weight: i64,
}

impl Runqueue {
    /// An empty one of those pCPUs.
    pub fn new(cpus: Mask, none: Mask) -> Runqueue {
        let (waiting, members) = (Vec::new(), Vec::new());
        Runqueue { idle: cpus.clone(), cpus, tickled: none, waiting, members, most_weight: 1 }
    }

    /// Adds one that waits.
    pub fn insert(&mut self, vcpus: &[Vcpu], entity: u32) {
        let credit = |entity: u32| vcpus[entity as usize].credit;
        let at = self.waiting.iter().position(|&other| credit(other) < credit(entity));
        self.waiting.insert(at.unwrap_or(self.waiting.len()), entity);
    }
}

/// By how many times the initial credit a reset lifts everybody, so that one with that credit gets out of debt.
pub fn reset_times(credit: i64) -> i64 {
    1 + if credit < -CREDIT_NS { -credit / CREDIT_NS } else { 0 }
}
