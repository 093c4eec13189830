//! The notices that a run gives while it goes on.

use reprieve_policy::cpus::CpuSet;
use reprieve_policy::guard::Advice;

use super::find::Source;
use super::link::Decision;

/// A notice. `pid`, `tid` and `comm` are a task's process, thread id and name; `at_ns` is the time.
#[derive(Debug)]
#[allow(missing_docs, reason = "the text above says what the fields are")]
pub enum Notice<'a> {
    /// The run has begun; `source` recognizes I/O tasks.
    Began { vcpus: usize, source: Source },
    /// This machine lacks something, and the run works less well.
    Warning(String),
    /// A task is managed from now on; its user allows the CPUs in `mask`.
    TakenIn { pid: i32, tid: i32, comm: &'a str, mask: CpuSet, at_ns: u64 },
    /// A decision was made; it is carried out if the run applies decisions.
    Decision { pid: i32, tid: i32, comm: &'a str, decision: &'a Decision },
    /// The guard's advice has changed.
    Advice { advice: Advice, at_ns: u64 },
    /// Values were lost between threads, because a thread came too late.
    Lost { values: u64, at_ns: u64 },
}
