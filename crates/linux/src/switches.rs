//! Records when threads ran, were preempted, and were blocked, from the kernel's own switch records.
//!
//! One software event per thread requests `PERF_RECORD_SWITCH` from perf. At every switch in and out the kernel writes
//! one record, with time (CLOCK_MONOTONIC) and CPU, into a ring shared with this process. There is no sampling, and it
//! needs no root: `perf_event_paranoid` = 2 is enough for the user's own processes.
//!
//! ```text
//! SwitchRecorder --drain--> SwitchEvent --push--> IntervalBuilder --finish--> [Interval]
//! ```
//!
//! Invariants: the events of one thread come in the order of time (those of different threads do not). Loss is never
//! silent: it is counted, and reported as an event in its place.
//!
//! Ring and records are read by hand, since perf-event2 0.7 panics on a record with a bad size, and cannot tell that a
//! record may have been lost before the kernel reports it (`ring::Drained`).
//! Source: perf_event_open(2); `PERF_RECORD_SWITCH` in include/uapi/linux/perf_event.h.

mod interval;
mod recorder;

pub use crate::perf::record::SwitchKind;
pub use interval::{Interval, IntervalBuilder, State};
pub use recorder::{MAX_RECORDED_THREADS, MAX_RING_PAGES, SwitchRecorder};

/// One switch of one thread, which is given by its index in the list that the recorder got, at a time of CLOCK_MONOTONIC. The CPU
/// is there if the kernel reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text above says what the fields are")]
pub struct SwitchEvent {
    pub thread_index: usize,
    pub time_ns: u64,
    pub cpu: Option<u32>,
    pub kind: SwitchKind,
}
