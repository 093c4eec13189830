//! The kernel's clocks.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// Nanoseconds of CLOCK_MONOTONIC. A vDSO call, safe in signal handlers.
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread. A system call.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of another thread; 0 where the C library knows no clock for it.
pub(crate) fn cpu_ns_of(thread: &JoinHandle<()>) -> u64 {
    let mut clock = 0;
    // The cast: `std` and libc disagree about the type on musl.
    // SAFETY: the handle is neither joined nor detached, so the thread's id is valid; `clock` is, for the call.
    let failed = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t() as _, &raw mut clock) } != 0;
    if failed { 0 } else { read(clock) }
}

/// 0 for a clock that has gone: that of a thread which has ended.
fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec for the length of the call.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
