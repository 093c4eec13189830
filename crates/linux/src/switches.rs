//! When given threads ran, were preempted, and were blocked, from the kernel's own switch records.
//!
//! One software event per thread asks perf for nothing but `PERF_RECORD_SWITCH`: the kernel writes one
//! record at every switch in and out, with time (CLOCK_MONOTONIC) and CPU, into a ring shared with this
//! process. No sampling, no root (works with `perf_event_paranoid` = 2 for the user's own processes).
//!
//! ```text
//! SwitchRecorder --drain--> SwitchEvent --push--> IntervalBuilder --finish--> [Interval]
//! ```
//!
//! Invariants: the events of one thread come in the order of time (those of different threads do not);
//! loss is never silent: it comes as an event where it happened, and is counted.
//! Source: perf_event_open(2); `PERF_RECORD_SWITCH` in include/uapi/linux/perf_event.h.

mod interval;
pub(crate) mod record;
mod recorder;
pub(crate) mod ring;

pub use interval::{Interval, IntervalBuilder, State};
pub use recorder::{MAX_RECORDED_THREADS, MAX_RING_PAGES, SwitchRecorder};

/// What happened to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchKind {
    /// It was put on a CPU.
    In,
    /// It was taken off its CPU though it wanted to run on: preempted, or throttled by its CPU quota.
    OutPreempted,
    /// It left its CPU of its own accord: it sleeps, waits, or ended.
    OutVoluntary,
    /// The ring was full: an unknown number of events is missing before `time_ns`.
    Lost,
}

/// One switch of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchEvent {
    /// Which thread: the index into the list the recorder was opened with.
    pub thread_index: usize,
    /// When, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// On which CPU, if the kernel says.
    pub cpu: Option<u32>,
    /// What happened.
    pub kind: SwitchKind,
}
