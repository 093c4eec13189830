//! A perf event on each CPU, for all tasks, with a ring of its records each.
//!
//! Invariant: loss is never silent. Source: perf_event_open(2). A system-wide event needs CAP_PERFMON or
//! `perf_event_paranoid` <= 0; a kprobe needs CAP_PERFMON always.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys::{bindings as perf, perf_event_open};
use reprieve_policy::cpus::CpuSet;

use crate::error::{Error, Result};
use crate::switches::perf_record::PerfRecord;
use crate::switches::ring::Ring;

const WAY_OUT: &str =
    "run as root or with CAP_PERFMON; to see forks alone, perf_event_paranoid <= 0 is enough";

/// What is recorded, for the kernel and for people.
#[derive(Clone)]
pub struct Asked {
    /// The event. Its records must carry TID, TIME and CPU (`attributes`).
    pub attributes: perf::perf_event_attr,
    /// Pages of each ring, a power of two.
    pub ring_pages: usize,
    /// What is watched, for errors: "forks".
    pub what: &'static str,
}

/// The event of one CPU. Fields drop in order: the ring is unmapped before its event is closed.
struct Watched {
    cpu: usize,
    ring: Ring,
    event: OwnedFd,
}

/// The events of all CPUs.
pub struct PerCpu {
    asked: Asked,
    watched: Vec<Watched>,
    missed: bool,
    /// A CPU that is online is not watched.
    blind: bool,
}

/// Attributes that all events here share: each record says who, when by CLOCK_MONOTONIC, and on which CPU.
pub fn attributes() -> perf::perf_event_attr {
    let mut attributes = perf::perf_event_attr::default();
    attributes.size = std::mem::size_of::<perf::perf_event_attr>() as u32;
    attributes.sample_type = (perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME | perf::PERF_SAMPLE_CPU).into();
    attributes.clockid = libc::CLOCK_MONOTONIC;
    attributes.set_use_clockid(1);
    attributes
}

impl PerCpu {
    /// On these CPUs.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::Io`], [`Error::Missing`] if the kernel has no such event.
    pub fn open(asked: Asked, online: &CpuSet) -> Result<PerCpu> {
        let watched: Result<Vec<Watched>> = online.iter().map(|cpu| watch(&asked, cpu)).collect();
        Ok(PerCpu { watched: watched?, asked, missed: false, blind: false })
    }

    /// Follows CPUs that come and go: an event does not outlive its CPU's being offline.
    pub fn follow(&mut self, online: &CpuSet) {
        let before = self.watched.len();
        self.watched.retain(|watched| online.contains(watched.cpu));
        let new = online.iter().filter(|cpu| self.watched.iter().all(|watched| watched.cpu != *cpu));
        let new: Vec<Result<Watched>> = new.map(|cpu| watch(&self.asked, cpu)).collect();
        self.missed |= !new.is_empty() || self.watched.len() < before;
        // A CPU that has just gone offline again cannot be watched: then this is called once more.
        self.blind = new.iter().any(Result::is_err);
        self.watched.extend(new.into_iter().flatten());
    }

    /// Takes all records since the last call, those of each CPU in the order of time; `true` if some are missing.
    pub fn drain(&mut self, sink: &mut impl FnMut(PerfRecord)) -> bool {
        let mut missed = std::mem::take(&mut self.missed) || self.blind;
        for watched in &mut self.watched {
            let drained = watched.ring.drain(&mut |record| match record {
                PerfRecord::Lost { .. } => missed = true,
                record => sink(record),
            });
            missed |= drained.may_have_lost || drained.bad_bytes > 0;
        }
        missed
    }

    /// The descriptors that become readable when there are records, if `attributes` ask for that.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.iter().map(|watched| watched.event.as_fd())
    }
}

fn watch(asked: &Asked, cpu: usize) -> Result<Watched> {
    let mut attributes = asked.attributes;
    let (any_task, no_group) = (-1, -1);
    // SAFETY: `attributes` is a live, initialised perf_event_attr of the size it states; what it points to, the name of
    // a function if anything, is a constant.
    let fd = unsafe {
        perf_event_open(&mut attributes, any_task, cpu as i32, no_group, perf::PERF_FLAG_FD_CLOEXEC.into())
    };
    let path = || std::path::PathBuf::from(format!("{} on CPU {cpu}", asked.what));
    if fd < 0 {
        let source = std::io::Error::last_os_error();
        return Err(match source.raw_os_error() {
            Some(libc::ENOSYS | libc::ENOENT | libc::EINVAL) => Error::Missing {
                what: "perf records of all tasks",
                path: path(),
                way_out: "use a kernel with CONFIG_PERF_EVENTS",
            },
            _ => Error::io("watch", path(), source, WAY_OUT),
        });
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    let ring = Ring::map(event.as_fd(), asked.ring_pages)
        .map_err(|e| Error::io("map the ring of", path(), e, "raise ulimit -l"))?;
    Ok(Watched { cpu, ring, event })
}
