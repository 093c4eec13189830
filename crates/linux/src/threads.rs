//! How single threads are scheduled: affinity, policy, nice, timer slack; and whether they run at all.
//!
//! Threads are named by their kernel id (tid), as in `/proc/PID/task`. Invariant: a guard restores what it
//! found, never a default. Source: sched(7), sched_setaffinity(2), setpriority(2), prctl(2).

mod affinity;
mod fifo;
mod nice;
mod slack;
mod stopped;

pub use affinity::{MAX_CPUS, affinity, affinity_set, set_affinity, set_affinity_set};
pub use fifo::FifoGuard;
pub use nice::{nice, set_nice};
pub use slack::set_timer_slack_ns;
pub use stopped::Stopped;

use crate::error::{Error, Result};
use rustix::thread::Pid;

/// The kernel's id of the calling thread.
pub fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// A tid as the system calls want it. 0 would mean "the caller" to the kernel and is refused.
fn to_pid(tid: i32) -> Result<Pid> {
    match Pid::from_raw(tid.max(0)) {
        Some(pid) => Ok(pid),
        None => Err(Error::invalid("thread id", tid.to_string(), "hand in a positive thread id")),
    }
}
