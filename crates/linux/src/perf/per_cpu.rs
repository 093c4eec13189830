//! Opens a perf event for all tasks on each CPU, each with its own ring of records.
//!
//! Invariant: loss is never silent. A system-wide event needs CAP_PERFMON or `perf_event_paranoid` <= 0; a kprobe
//! always needs CAP_PERFMON. Source: perf_event_open(2).

use std::os::fd::{AsFd, BorrowedFd};

use perf_event_open_sys::bindings::perf_event_attr;
use reprieve_policy::cpus::CpuSet;

use super::event::{Event, Refusal};
use super::record::PerfRecord;
use crate::{Error, Result};

const WAY_OUT: &str = "run as root or with CAP_PERFMON; for forks only, perf_event_paranoid <= 0 is enough";

/// What to record.
#[derive(Clone)]
pub struct EventSpec {
    /// The event. Its records must carry TID, TIME and CPU; see [`attributes`](super::event::attributes).
    pub attributes: perf_event_attr,
    /// Pages of each ring, a power of two.
    pub ring_pages: usize,
    /// What is watched, for error messages, such as "forks".
    pub what: &'static str,
}

/// The event of one CPU.
struct Watched {
    cpu: usize,
    event: Event,
}

/// The events of all CPUs.
pub struct PerCpu {
    spec: EventSpec,
    watched: Vec<Watched>,
    missed: bool,
    /// Whether some online CPU is not watched.
    blind: bool,
}

impl PerCpu {
    /// Opens the event on these CPUs.
    pub fn open(spec: EventSpec, online: &CpuSet) -> Result<PerCpu> {
        let watched: Result<Vec<Watched>> = online.iter().map(|cpu| watch(&spec, cpu)).collect();
        Ok(PerCpu { watched: watched?, spec, missed: false, blind: false })
    }

    /// Follows CPUs that come online or go offline. An event ends when its CPU goes offline.
    pub fn follow(&mut self, online: &CpuSet) {
        let before = self.watched.len();
        self.watched.retain(|watched| online.contains(watched.cpu));
        let new = online.iter().filter(|cpu| self.watched.iter().all(|watched| watched.cpu != *cpu));
        let new: Vec<Result<Watched>> = new.map(|cpu| watch(&self.spec, cpu)).collect();
        self.missed |= !new.is_empty() || self.watched.len() < before;
        // This fails for a CPU that has just gone offline again; the next call corrects it.
        self.blind = new.iter().any(Result::is_err);
        self.watched.extend(new.into_iter().flatten());
    }

    /// Takes all records since the last drain, each CPU's in the order of time. Returns whether some are missing.
    pub fn drain(&mut self, sink: &mut impl FnMut(PerfRecord)) -> bool {
        let mut missed = std::mem::take(&mut self.missed) || self.blind;
        for watched in &mut self.watched {
            let drained = watched.event.ring.drain(&mut |record| match record {
                PerfRecord::Lost { .. } => missed = true,
                record => sink(record),
            });
            missed |= drained.may_have_lost || drained.bad_bytes > 0;
        }
        missed
    }

    /// How often the event has happened on all these CPUs, whether or not it made a record.
    pub fn count(&self) -> Result<u64> {
        let read = |watched: &Watched| {
            let mut bytes = [0; 8];
            let read = rustix::io::read(&watched.event.file, &mut bytes);
            read.map_err(|e| {
                Error::io("count", format!("{} on CPU {}", self.spec.what, watched.cpu), e, WAY_OUT)
            })?;
            Ok(u64::from_ne_bytes(bytes))
        };
        self.watched.iter().map(read).sum()
    }

    /// Descriptors that become readable when there are records, if the event's attributes set a watermark.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.iter().map(|watched| watched.event.file.as_fd())
    }
}

fn watch(spec: &EventSpec, cpu: usize) -> Result<Watched> {
    let any_task = -1;
    let opened = Event::open(spec.attributes, any_task, cpu as i32, spec.ring_pages);
    let path = std::path::PathBuf::from(format!("{} on CPU {cpu}", spec.what));
    let event = opened.map_err(|refusal| match refusal {
        Refusal::Unknown => Error::Missing {
            what: "perf records of all tasks",
            path,
            way_out: "use a kernel with CONFIG_PERF_EVENTS",
        },
        Refusal::Open(e) => Error::io("watch", path, e, WAY_OUT),
        Refusal::Map(e) => Error::io("map the ring of", path, e, "raise ulimit -l"),
    })?;
    Ok(Watched { cpu, event })
}
