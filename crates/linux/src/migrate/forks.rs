//! Who forks whom, from the kernel's own records: a software event on each CPU that counts nothing and makes a record of
//! every fork in the system.
//!
//! A fork costs a record of 56 bytes, and no task pays for being watched, as it would with an event of its own. Invariant:
//! loss is never silent. Source: perf_event_open(2), `PERF_RECORD_FORK`; a system-wide event needs CAP_PERFMON or
//! `perf_event_paranoid` <= 0.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys::{bindings as perf, perf_event_open};
use reprieve_policy::cpus::CpuSet;

use crate::error::{Error, Result};
use crate::switches::record::Record;
use crate::switches::ring::Ring;

/// Pages of a ring: 1100 forks on one CPU between two looks.
const RING_PAGES: usize = 16;
const WAY_OUT: &str = "run as root or with CAP_PERFMON, or set /proc/sys/kernel/perf_event_paranoid to 0";

/// A fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The task that has forked.
    pub parent_tid: i32,
    /// The process of the new task.
    pub pid: i32,
    /// The new task.
    pub tid: i32,
    /// When, ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// On which CPU: what a bound task was bound to.
    pub cpu: usize,
}

/// Fields drop in order: the ring is unmapped before its event is closed.
struct Watched {
    cpu: usize,
    ring: Ring,
    event: OwnedFd,
}

/// Watches for forks.
pub struct Forks {
    watched: Vec<Watched>,
    forks: Vec<Fork>,
    missed: bool,
}

impl Forks {
    /// On these CPUs.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::Io`], [`Error::Missing`] if the kernel has no perf.
    pub fn open(online: &CpuSet) -> Result<Forks> {
        let watched: Result<Vec<Watched>> = online.iter().map(watch).collect();
        Ok(Forks { watched: watched?, forks: Vec::new(), missed: false })
    }

    /// Follows CPUs that come and go: an event does not outlive its CPU's being offline.
    pub fn follow(&mut self, online: &CpuSet) {
        let before = self.watched.len();
        self.watched.retain(|watched| online.contains(watched.cpu));
        let new = online.iter().filter(|cpu| self.watched.iter().all(|watched| watched.cpu != *cpu));
        // One that goes offline just now is not watched, and does nothing.
        let new: Vec<Watched> = new.filter_map(|cpu| watch(cpu).ok()).collect();
        self.missed |= !new.is_empty() || self.watched.len() < before;
        self.watched.extend(new);
    }

    /// All forks since the last call, in the order of time; `true` if some are missing.
    pub fn drain(&mut self) -> (&[Fork], bool) {
        self.forks.clear();
        let (forks, mut missed) = (&mut self.forks, std::mem::take(&mut self.missed));
        for watched in &mut self.watched {
            let bad_bytes = watched.ring.drain(&mut |record| match record {
                Record::Fork { parent_tid, pid, tid, time_ns, cpu } => {
                    forks.push(Fork { parent_tid, pid, tid, at_ns: time_ns, cpu: cpu as usize });
                }
                Record::Lost { .. } => missed = true,
                _ => {}
            });
            missed |= bad_bytes > 0;
        }
        forks.sort_unstable_by_key(|fork| fork.at_ns);
        (&self.forks, missed)
    }

    /// What becomes readable when something has forked.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.iter().map(|watched| watched.event.as_fd())
    }
}

fn watch(cpu: usize) -> Result<Watched> {
    let mut attributes = fork_attributes();
    let (any_task, no_group) = (-1, -1);
    // SAFETY: `attributes` is a live, initialised perf_event_attr of the size it states.
    let fd = unsafe {
        perf_event_open(&mut attributes, any_task, cpu as i32, no_group, perf::PERF_FLAG_FD_CLOEXEC.into())
    };
    let path = || std::path::PathBuf::from(format!("CPU {cpu}"));
    if fd < 0 {
        let source = std::io::Error::last_os_error();
        return Err(match source.raw_os_error() {
            Some(libc::ENOSYS | libc::ENOENT | libc::EINVAL) => Error::Missing {
                what: "perf fork records",
                path: "perf_event_open".into(),
                way_out: "use a kernel with CONFIG_PERF_EVENTS",
            },
            _ => Error::io("watch for forks on", path(), source, WAY_OUT),
        });
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    let ring = Ring::map(event.as_fd(), RING_PAGES)
        .map_err(|e| Error::io("map the ring of forks of", path(), e, "raise ulimit -l"))?;
    Ok(Watched { cpu, ring, event })
}

/// A software event that counts nothing and makes a record of each fork.
fn fork_attributes() -> perf::perf_event_attr {
    let mut attributes = perf::perf_event_attr::default();
    attributes.type_ = perf::PERF_TYPE_SOFTWARE;
    attributes.size = std::mem::size_of::<perf::perf_event_attr>() as u32;
    attributes.config = perf::PERF_COUNT_SW_DUMMY.into();
    attributes.sample_type = (perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME | perf::PERF_SAMPLE_CPU).into();
    attributes.clockid = libc::CLOCK_MONOTONIC;
    attributes.set_task(1);
    attributes.set_sample_id_all(1);
    attributes.set_use_clockid(1);
    // Readable from the first record on.
    attributes.set_watermark(1);
    attributes.__bindgen_anon_2.wakeup_watermark = 1;
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_told_with_its_parent_and_its_cpu() {
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
        let (told, missed) = forks.drain();
        let fork = told.iter().find(|fork| fork.tid == child).expect("the fork is told");
        assert_eq!((fork.parent_tid, fork.pid, missed), (parent, std::process::id() as i32, false));
        assert!(online.contains(fork.cpu) && told.is_sorted_by_key(|fork| fork.at_ns));
    }

    #[test]
    fn a_cpu_that_comes_and_goes_is_told_as_a_gap() {
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
