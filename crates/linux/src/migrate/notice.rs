//! The notices that a run gives while it goes on.

use reprieve_policy::cpus::CpuSet;
use reprieve_policy::guard::Advice;

use super::find::source::Source;
use super::link::entry::Decision;

/// A notice.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The run has begun.
    Began {
        /// Number of vCPUs.
        vcpus: usize,
        /// What recognizes I/O tasks.
        source: Source,
    },
    /// This machine lacks something, and the run works less well.
    Warning(String),
    /// A task is managed from now on.
    TakenIn {
        /// Its process.
        pid: i32,
        /// Its thread id.
        tid: i32,
        /// Its name.
        comm: &'a str,
        /// The CPUs that its user allows.
        mask: CpuSet,
        /// The time, ns.
        at_ns: u64,
    },
    /// A decision was made; it is carried out if the run applies decisions.
    Decision {
        /// The task's process.
        pid: i32,
        /// Its thread id.
        tid: i32,
        /// Its name.
        comm: &'a str,
        /// The decision.
        decision: &'a Decision,
    },
    /// The guard's advice has changed.
    Advice {
        /// The new advice.
        advice: Advice,
        /// The time, ns.
        at_ns: u64,
    },
    /// Values were lost between threads, because a thread came too late.
    Lost {
        /// Number of values.
        values: u64,
        /// When this was noticed, ns.
        at_ns: u64,
    },
}
