//! Opens the perf events and drains their rings.
//!
//! Invariants: each thread has its own event and ring (the kernel does not let threads share one). Draining takes only
//! the records present when it reaches a ring, so it always ends; it allocates nothing. Source: perf_event_open(2).

use perf_event_open_sys::bindings::perf_event_attr;

use super::{SwitchEvent, SwitchKind};
use crate::error::{Error, Result, thread_path};
use crate::perf::event::{Event, Refusal, dummy_attributes};
use crate::perf::record::PerfRecord;

/// The most threads of one recorder.
pub const MAX_RECORDED_THREADS: usize = 4096;
/// The largest ring, in pages.
pub const MAX_RING_PAGES: usize = 1024;

const WAY_OUT_OPEN: &str = "record your own processes, run as root, or lower \
                            /proc/sys/kernel/perf_event_paranoid to 2; in a container allow perf_event_open";
const WAY_OUT_MAP: &str =
    "ask for fewer ring pages, or raise /proc/sys/kernel/perf_event_mlock_kb or ulimit -l";
const WAY_OUT_MISSING: &str = "use a kernel with CONFIG_PERF_EVENTS, Linux 4.17 or later";

/// Records the switches of a fixed set of threads. Dropping it ends the recording.
#[derive(Debug)]
pub struct SwitchRecorder {
    threads: Vec<Event>,
    lost: u64,
}

impl SwitchRecorder {
    /// Starts recording the threads `tids`, each into a ring of `ring_pages` pages: a power of two; a page of 4 KiB
    /// holds 128 switches.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond the limits, [`Error::Gone`] if a thread has ended,
    /// [`Error::NotPermitted`], [`Error::Missing`] if the kernel has no perf.
    pub fn open(tids: &[i32], ring_pages: usize) -> Result<SwitchRecorder> {
        if tids.len() > MAX_RECORDED_THREADS {
            let expected = "at most 4096 in one recorder";
            return Err(Error::invalid("number of threads", tids.len().to_string(), expected));
        }
        if !ring_pages.is_power_of_two() || ring_pages > MAX_RING_PAGES {
            let expected = "a power of two from 1 to 1024";
            return Err(Error::invalid("number of ring pages", ring_pages.to_string(), expected));
        }
        let threads: Result<Vec<Event>> = tids.iter().map(|&tid| open_one(tid, ring_pages)).collect();
        Ok(SwitchRecorder { threads: threads?, lost: 0 })
    }

    /// Passes all switches since the last drain to `sink`: one thread after another, each thread's in the order of
    /// time.
    pub fn drain(&mut self, sink: &mut impl FnMut(SwitchEvent)) {
        let lost = &mut self.lost;
        for (thread_index, thread) in self.threads.iter_mut().enumerate() {
            let mut last_ns = 0;
            let drained = thread.ring.drain(&mut |record| {
                let (kind, time_ns, cpu) = match record {
                    PerfRecord::Switch { kind, time_ns, cpu } => (kind, time_ns, cpu),
                    PerfRecord::Lost { count, time_ns, cpu } => {
                        *lost = lost.saturating_add(count);
                        (SwitchKind::Lost, time_ns, cpu)
                    }
                    _ => return,
                };
                last_ns = time_ns;
                sink(SwitchEvent { thread_index, time_ns, cpu: Some(cpu), kind });
            });
            if drained.bad_bytes > 0 {
                *lost = lost.saturating_add(1);
                sink(SwitchEvent { thread_index, time_ns: last_ns, cpu: None, kind: SwitchKind::Lost });
            }
        }
    }

    /// Number of records that did not fit into the rings, as far as drained.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

fn open_one(tid: i32, ring_pages: usize) -> Result<Event> {
    if tid <= 0 {
        return Err(Error::invalid("thread id", tid.to_string(), "use a positive thread id"));
    }
    let any_cpu = -1;
    Event::open(switch_attributes(), tid, any_cpu, ring_pages).map_err(|refusal| match refusal {
        Refusal::Unknown => Error::Missing {
            what: "perf context switch records",
            path: "perf_event_open".into(),
            way_out: WAY_OUT_MISSING,
        },
        Refusal::Open(e) => Error::task("record the switches of", thread_path(tid), e, WAY_OUT_OPEN),
        Refusal::Map(e) => Error::io("map the switch ring of", thread_path(tid), e, WAY_OUT_MAP),
    })
}

/// An event that only produces switch records.
fn switch_attributes() -> perf_event_attr {
    let mut attributes = dummy_attributes();
    attributes.set_context_switch(1);
    // This excludes no switch records, but perf_event_paranoid = 2 refuses the event without it.
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    attributes
}

#[cfg(test)]
mod tests;
