//! Constants of credit2. Times are ns; so are credits, at the weight of the heaviest vCPU of a runqueue.

use reprieve_study::units::MILLISECOND_NS;

use crate::sched::Cpu;

/// What a vCPU starts with, and gets at a reset (`CSCHED2_CREDIT_INIT`); also the longest timer.
pub const CREDIT_NS: i64 = 10 * MILLISECOND_NS as i64;
/// The shortest timer (`CSCHED2_MIN_TIMER`), and what a vCPU may keep over a reset (`CSCHED2_CARRYOVER_MAX`).
pub const LEAST_NS: i64 = 500_000;
/// By how much more credit a vCPU must have to be taken from another pCPU (`CSCHED2_MIGRATE_RESIST`).
pub const RESIST_NS: i64 = 500_000;
/// What a vCPU gets for being moved (`CSCHED2_MIGRATE_COMPENSATION`).
pub const COMPENSATION_NS: i64 = 50_000;
/// A wake may interrupt so long before the rate limit ends (`CSCHED2_RATELIMIT_TICKLE_TOLERANCE`).
pub const TOLERANCE_NS: u64 = 50_000;

/// What a credit2 scheduler is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// pCPUs of the machine, at least one.
    pub cpus: u32,
    /// pCPUs of the pool; all if empty.
    pub pool: Vec<Cpu>,
    /// pCPUs that share a runqueue (a socket's, by default); 0 for all.
    pub runqueue_cpus: u32,
    /// What a vCPU runs at least before another may take its pCPU; 0 for no limit.
    pub ratelimit_ns: u64,
    /// The late wake is fixed: a wake that the rate limit refuses sets the pCPU's timer to the end of the limit.
    pub retry_refused: bool,
}

impl Params {
    /// Xen's defaults on so many pCPUs.
    pub fn xen(cpus: u32) -> Params {
        let ratelimit_ns = crate::sched::credit::params::RATELIMIT_NS;
        Params { cpus: cpus.max(1), pool: Vec::new(), runqueue_cpus: 0, ratelimit_ns, retry_refused: false }
    }
}
