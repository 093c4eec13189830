//! Watches whether somebody else sets a task's mask, through the kernel's records of sched_setaffinity(2).

use std::os::fd::BorrowedFd;
use std::path::Path;

use reprieve_policy::cpus::CpuSet;

use super::{Call, CallHistory, CallTarget, Calls, Phase, SetByOther};
use crate::clock;
use crate::proc::ProcRoot;
use crate::{Error, Result};

/// The records of calls, and their history.
pub struct CallWatch {
    /// `None` without records; then every answer is "unknown".
    calls: Option<Calls>,
    history: CallHistory,
}

impl CallWatch {
    /// Watches all calls from now on.
    pub fn open(sys: &Path, online: &CpuSet, now_ns: u64) -> Result<CallWatch> {
        if !sees_all_numbers() {
            let (path, way_out) = ("/proc/self/ns/pid".into(), "run it outside of containers");
            return Err(Error::Missing { what: "view of all tasks' ids", path, way_out });
        }
        let calls = Some(Calls::open(sys, online)?);
        Ok(CallWatch { calls, history: CallHistory::new(std::process::id() as i32, now_ns) })
    }

    /// A watch without records, which answers every question with "unknown".
    pub fn blind() -> CallWatch {
        CallWatch { calls: None, history: CallHistory::new(0, u64::MAX) }
    }

    /// Whether there are records.
    pub fn sees(&self) -> bool {
        self.calls.is_some()
    }

    /// Whether watching slows every system call of every task.
    pub fn slows_all(&self) -> bool {
        self.calls.as_ref().is_some_and(Calls::slows_all)
    }

    /// Descriptors that become readable when there are many calls to take in.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.calls.iter().flat_map(Calls::readable)
    }

    /// Follows CPUs that come online or go offline.
    pub fn follow(&mut self, online: &CpuSet) {
        self.calls.iter_mut().for_each(|calls| calls.follow(online));
    }

    /// Takes in all calls up to now.
    pub fn look(&mut self, root: &ProcRoot) {
        let Some(calls) = &mut self.calls else { return };
        let (new, missed) = calls.drain();
        for call in new {
            self.history.take(call, target_of(root, call));
        }
        let now_ns = clock::now_ns();
        if missed {
            self.history.lost(now_ns);
        }
        self.history.tidy(now_ns);
    }

    /// Whether somebody else has set the mask of the task with these ids since then, up to the last
    /// [`look`](CallWatch::look).
    pub fn since(&self, numbers: &[i32], since_ns: u64) -> SetByOther {
        self.history.since(numbers, since_ns)
    }

    /// The same for task `tid` of process `pid`.
    pub fn since_of(&self, root: &ProcRoot, pid: i32, tid: i32, since_ns: u64) -> Result<SetByOther> {
        Ok(self.since(&root.numbers(pid, tid)?, since_ns))
    }
}

/// The target of a call that begins. The call names it by its id in the caller's PID namespace.
fn target_of(root: &ProcRoot, call: &Call) -> Option<CallTarget> {
    let Phase::Begin { target } = call.phase else { return None };
    if target == 0 {
        return Some(CallTarget::Task(call.caller_tid));
    }
    let numbers_of = |tid: i32| root.numbers(call.caller_pid, tid).ok();
    Some(match numbers_of(call.caller_tid) {
        Some(numbers) if numbers.len() == 1 => CallTarget::Task(target),
        // In another namespace: mostly it names a thread of its own process.
        Some(_) => {
            let threads = root.thread_ids(call.caller_pid).unwrap_or_default();
            let is_target =
                |tid: &i32| numbers_of(*tid).is_some_and(|numbers| numbers.last() == Some(&target));
            threads.into_iter().find(is_target).map_or(CallTarget::Number(target), CallTarget::Task)
        }
        // The caller has ended and cannot be inspected.
        None => CallTarget::Number(target),
    })
}

/// Whether this process is in the initial PID namespace. Otherwise callers outside of its namespace name ids that it
/// does not know.
fn sees_all_numbers() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == INITIAL_PID_NAMESPACE)
}

/// `PROC_PID_INIT_INO` of the kernel's include/linux/proc_ns.h.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
