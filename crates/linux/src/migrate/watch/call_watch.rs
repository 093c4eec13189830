//! Tells whether a task's mask was set by somebody else, from the kernel's records of the calls that do so.

use std::os::fd::BorrowedFd;
use std::path::Path;

use reprieve_policy::cpus::CpuSet;

use super::call_history::{CallHistory, SetByOther, Whom};
use super::calls::{Call, Calls, Phase};
use crate::error::{Error, Result};
use crate::migrate::clock;
use crate::proc::ProcRoot;

/// The calls, and what is left to know of them.
pub struct CallWatch {
    /// None where there are no records: then nothing is known.
    calls: Option<Calls>,
    history: CallHistory,
}

impl CallWatch {
    /// That sees everything from now on.
    ///
    /// # Errors
    /// [`NotPermitted`](crate::Error::NotPermitted), [`Io`](crate::Error::Io), and [`Missing`](crate::Error::Missing) if
    /// the kernel has no such probes, or they see nothing.
    pub fn open(sys: &Path, online: &CpuSet, now_ns: u64) -> Result<CallWatch> {
        if !sees_all_numbers() {
            let (path, way_out) = ("/proc/self/ns/pid".into(), "run it outside of containers");
            return Err(Error::Missing { what: "view of all tasks' numbers", path, way_out });
        }
        let calls = Some(Calls::open(sys, online)?);
        Ok(CallWatch { calls, history: CallHistory::new(std::process::id() as i32, now_ns) })
    }

    /// That sees nothing.
    pub fn blind() -> CallWatch {
        CallWatch { calls: None, history: CallHistory::new(0, u64::MAX) }
    }

    /// Whether it sees anything.
    pub fn sees(&self) -> bool {
        self.calls.is_some()
    }

    /// Whether every system call of every task pays for it.
    pub fn slows_all(&self) -> bool {
        self.calls.as_ref().is_some_and(Calls::slows_all)
    }

    /// What becomes readable when there are many calls to take in.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.calls.iter().flat_map(Calls::readable)
    }

    /// Follows CPUs that come and go.
    pub fn follow(&mut self, online: &CpuSet) {
        self.calls.iter_mut().for_each(|calls| calls.follow(online));
    }

    /// Takes in all calls up to now.
    pub fn look(&mut self, root: &ProcRoot) {
        let Some(calls) = &mut self.calls else { return };
        let (told, missed) = calls.drain();
        for call in told {
            self.history.told(call, whom(root, call));
        }
        let now_ns = clock::now_ns();
        if missed {
            self.history.lost(now_ns);
        }
        self.history.tidy(now_ns);
    }

    /// Whether somebody has set the mask of the task with these numbers since then, as far as it has looked.
    pub fn since(&self, numbers: &[i32], since_ns: u64) -> SetByOther {
        self.history.since(numbers, since_ns)
    }

    /// The same of task `tid` of process `pid`.
    ///
    /// # Errors
    /// As [`ProcRoot::numbers`].
    pub fn since_of(&self, root: &ProcRoot, pid: i32, tid: i32, since_ns: u64) -> Result<SetByOther> {
        Ok(self.since(&root.numbers(pid, tid)?, since_ns))
    }
}

/// Whose mask a call sets, if it begins. It names a number in the PID namespace of its caller.
fn whom(root: &ProcRoot, call: &Call) -> Option<Whom> {
    let Phase::Begin { target } = call.phase else { return None };
    if target == 0 {
        return Some(Whom::Task(call.caller_tid));
    }
    let number_of = |tid: i32| root.numbers(call.caller_pid, tid).ok();
    Some(match number_of(call.caller_tid) {
        Some(numbers) if numbers.len() == 1 => Whom::Task(target),
        // A thread of its own process, as a rule.
        Some(_) => {
            let threads = root.thread_ids(call.caller_pid).unwrap_or_default();
            let is_meant = |tid: &i32| number_of(*tid).is_some_and(|numbers| numbers.last() == Some(&target));
            threads.into_iter().find(is_meant).map_or(Whom::Anybody(target), Whom::Task)
        }
        // It has ended, and cannot be asked.
        None => Whom::Anybody(target),
    })
}

/// Whether this process has the numbers that the kernel itself uses: then callers in other namespaces name theirs, and else
/// callers outside name numbers that we do not know.
fn sees_all_numbers() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == INITIAL_PID_NAMESPACE)
}

/// `PROC_PID_INIT_INO` of the kernel's include/linux/proc_ns.h.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
