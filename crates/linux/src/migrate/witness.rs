//! Tells whether a task's mask was set by somebody else, from the kernel's records of the calls that do so.

use std::os::fd::BorrowedFd;
use std::path::Path;

use reprieve_policy::cpus::CpuSet;

use super::calls::Calls;
use super::wishes::{Set, Wishes};
use crate::error::Result;
use crate::proc::ProcRoot;

/// The calls, and what is left to know of them.
pub struct Witness {
    /// None where there are no records: then nothing is known.
    calls: Option<Calls>,
    wishes: Wishes,
}

impl Witness {
    /// That sees everything from now on.
    ///
    /// # Errors
    /// [`NotPermitted`](crate::Error::NotPermitted), [`Io`](crate::Error::Io), and [`Missing`](crate::Error::Missing) if
    /// the kernel has no such probes, or they see nothing.
    pub fn open(sys: &Path, online: &CpuSet, now_ns: u64) -> Result<Witness> {
        let calls = Some(Calls::open(sys, online)?);
        Ok(Witness { calls, wishes: Wishes::new(std::process::id() as i32, now_ns) })
    }

    /// That sees nothing.
    pub fn blind() -> Witness {
        Witness { calls: None, wishes: Wishes::new(0, u64::MAX) }
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
    pub fn look(&mut self, now_ns: u64) {
        let Some(calls) = &mut self.calls else { return };
        let (told, missed) = calls.drain();
        told.iter().for_each(|call| self.wishes.told(call));
        if missed {
            self.wishes.lost(now_ns);
        }
        self.wishes.tidy(now_ns);
    }

    /// Whether somebody has set the mask of the task with these numbers since then, as far as it has looked.
    pub fn since(&self, numbers: &[i32], since_ns: u64) -> Set {
        self.wishes.since(numbers, since_ns)
    }

    /// The same of task `tid` of process `pid`.
    ///
    /// # Errors
    /// As [`ProcRoot::numbers`].
    pub fn since_of(&self, root: &ProcRoot, pid: i32, tid: i32, since_ns: u64) -> Result<Set> {
        Ok(self.since(&root.numbers(pid, tid)?, since_ns))
    }
}
