//! Sets how single threads are scheduled: affinity, policy, nice value and timer slack; and stops them.
//!
//! Threads are named by their kernel id (tid), as in `/proc/PID/task`. Invariant: a guard restores the former value,
//! never a default. Source: sched(7), sched_setaffinity(2), setpriority(2), prctl(2).
//!
//! Errors of all functions here: [`Error::Gone`] if there is no such thread, and [`Error::NotPermitted`].

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

use crate::{Error, Result};
use rustix::thread::Pid;

/// The kernel's id of the calling thread.
pub fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Converts a tid for system calls. Refuses 0, which would mean "the caller" to the kernel.
fn to_pid(tid: i32) -> Result<Pid> {
    match Pid::from_raw(tid.max(0)) {
        Some(pid) => Ok(pid),
        None => Err(Error::invalid("thread id", tid.to_string(), "use a positive thread id")),
    }
}
