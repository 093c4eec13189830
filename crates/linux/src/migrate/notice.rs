//! What a run reports while it goes on.

use reprieve_policy::cpus::CpuSet;
use reprieve_policy::guard::Advice;

use super::find::source::Source;
use super::link::entry::Decision;

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Notice<'a> {
    /// It has begun: so many vCPUs, and what tells I/O tasks.
    Began {
        /// vCPUs.
        vcpus: usize,
        /// What tells I/O tasks.
        source: Source,
    },
    /// Something of the machine is less than it could be.
    Warning(String),
    /// A task is looked after from now on.
    TakenIn {
        /// Its process.
        pid: i32,
        /// Its number.
        tid: i32,
        /// Its name.
        comm: &'a str,
        /// Where its user lets it run.
        mask: CpuSet,
        /// When, ns.
        at_ns: u64,
    },
    /// A decision was made, and is carried out if the run does that.
    Decision {
        /// The task's process.
        pid: i32,
        /// Its number.
        tid: i32,
        /// Its name.
        comm: &'a str,
        /// The decision.
        decision: &'a Decision,
    },
    /// Whether acting pays has changed.
    Advice {
        /// What is advised from now on.
        advice: Advice,
        /// When, ns.
        at_ns: u64,
    },
    /// Values were lost between threads: the house thread came too late.
    Lost {
        /// How many.
        values: u64,
        /// When it was noticed, ns.
        at_ns: u64,
    },
}
