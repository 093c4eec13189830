//! Records forks: a software event on each CPU counts nothing, and makes a kernel record of every fork in the system.
//!
//! A fork costs one record of 56 bytes. An event per watched task would instead slow these tasks.
//! Source: perf_event_open(2), `PERF_RECORD_FORK`.

use std::os::fd::BorrowedFd;

use perf_event_open_sys::bindings::perf_event_attr;
use reprieve_policy::cpus::CpuSet;

use crate::Result;
use crate::perf::event::dummy_attributes;
use crate::perf::per_cpu::{EventSpec, PerCpu};
use crate::perf::record::PerfRecord;

/// Pages of a ring: room for 1,100 forks on one CPU between two looks.
const RING_PAGES: usize = 16;

/// Task `parent_tid` forked task `tid` of process `pid`, at a time of CLOCK_MONOTONIC. If the parent was bound, `cpu` is the one
/// that it was bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text above says what the fields are")]
pub struct Fork {
    pub parent_tid: i32,
    pub pid: i32,
    pub tid: i32,
    pub at_ns: u64,
    pub cpu: usize,
}

/// Watches forks on all CPUs.
pub struct Forks {
    watched: PerCpu,
    forks: Vec<Fork>,
}

impl Forks {
    /// Watches these CPUs.
    pub fn open(online: &CpuSet) -> Result<Forks> {
        let spec = EventSpec { attributes: fork_attributes(), ring_pages: RING_PAGES, what: "forks" };
        Ok(Forks { watched: PerCpu::open(spec, online)?, forks: Vec::new() })
    }

    /// Follows CPUs that come online or go offline.
    pub fn follow(&mut self, online: &CpuSet) {
        self.watched.follow(online);
    }

    /// All forks since the last drain, in the order of time, and whether some are missing.
    pub fn drain(&mut self) -> (&[Fork], bool) {
        self.forks.clear();
        let forks = &mut self.forks;
        let missed = self.watched.drain(&mut |record| {
            if let PerfRecord::Fork { parent_tid, pid, tid, time_ns, cpu } = record {
                forks.push(Fork { parent_tid, pid, tid, at_ns: time_ns, cpu: cpu as usize });
            }
        });
        forks.sort_unstable_by_key(|fork| fork.at_ns);
        (&self.forks, missed)
    }

    /// Descriptors that become readable when a task has forked.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.readable()
    }
}

/// An event that only records each fork.
fn fork_attributes() -> perf_event_attr {
    let mut attributes = dummy_attributes();
    attributes.set_task(1);
    // Becomes readable at the first record.
    attributes.set_watermark(1);
    attributes.__bindgen_anon_2.wakeup_watermark = 1;
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_recorded_with_its_parent_and_cpu() {
        let online = crate::proc::SysCpus::default().online();
        let mut forks = match Forks::open(&online) {
            Ok(forks) => forks,
            Err(e) => return eprintln!("skipped: {e}"),
        };
        let (parent, child) = std::thread::spawn(|| {
            let own = crate::threads::own_tid();
            (own, std::thread::spawn(crate::threads::own_tid).join().unwrap())
        })
        .join()
        .unwrap();
        let (seen, missed) = forks.drain();
        let fork = seen.iter().find(|fork| fork.tid == child).expect("the fork is recorded");
        assert_eq!((fork.parent_tid, fork.pid, missed), (parent, std::process::id() as i32, false));
        assert!(online.contains(fork.cpu) && seen.is_sorted_by_key(|fork| fork.at_ns));
    }

    #[test]
    fn a_cpu_that_comes_or_goes_counts_as_missing_records() {
        let online = crate::proc::SysCpus::default().online();
        let Ok(mut forks) = Forks::open(&online) else { return };
        let first = CpuSet::of(online.iter().next().unwrap());
        forks.follow(&online);
        assert!(!forks.drain().1);
        forks.follow(&first);
        assert_eq!((forks.readable().count(), forks.drain().1), (1, online.len() > 1));
        forks.follow(&online);
        assert_eq!((forks.readable().count(), forks.drain().1), (online.len(), online.len() > 1));
    }
}
