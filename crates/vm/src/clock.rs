//! CLOCK_MONOTONIC in nanoseconds: the clock of bursts, looks and scheduling events, so that their times compare.

use reprieve_study::units::SECOND_NS;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;

/// The time now.
pub fn now_ns() -> u64 {
    read_ns(rustix::time::ClockId::Monotonic)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    read_ns(rustix::time::ClockId::ThreadCPUTime)
}

/// Sleeps until that time. A signal may end the sleep early.
pub(crate) fn sleep_until(at_ns: u64) {
    let at = Timespec { tv_sec: (at_ns / SECOND_NS) as i64, tv_nsec: (at_ns % SECOND_NS) as i64 };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

fn read_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}
