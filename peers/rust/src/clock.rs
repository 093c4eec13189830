//! Clocks, in nanoseconds. `CLOCK_MONOTONIC` stamps deletes and frees; `CLOCK_THREAD_CPUTIME_ID` charges a thread only
//! for the time it ran, so that a preempted reader does not look slow.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND_NS: u64 = 1_000_000;

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux has this clock");
    time.tv_sec() as u64 * SECOND_NS + time.tv_nsec() as u64
}

/// The time of `CLOCK_MONOTONIC`.
#[inline]
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until the absolute time `until_ns` of `CLOCK_MONOTONIC`; returns at once when it has passed.
pub fn sleep_until(until_ns: u64) {
    let until = TimeSpec::new((until_ns / SECOND_NS) as i64, (until_ns % SECOND_NS) as i64);
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until)
        == Err(Errno::EINTR)
    {}
}
