//! The kernel's clocks, and how much of a system call a thread spent waiting.

use crate::units::SECOND_NS;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// Nanoseconds of CLOCK_MONOTONIC. A vDSO call, which signal handlers may make.
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread. Costs a system call.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What a thread has executed so far. Distinguishes time in which it waited in a system call from time in which it
/// was descheduled.
#[cfg(not(any(shuttle, loom)))]
pub(crate) struct Executed {
    cpu_ns: u64,
    /// How often the thread went to sleep.
    sleeps: i64,
}

#[cfg(not(any(shuttle, loom)))]
impl Executed {
    /// The calling thread's figures.
    pub(crate) fn by_caller() -> Self {
        // SAFETY: all bits zero are a value, and it is valid for the call.
        let usage = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        Self { cpu_ns: thread_cpu_ns(), sleeps: usage.ru_nvcsw as i64 }
    }

    /// How much of the last `latency_ns` the caller has waited in membarrier. membarrier waits for other CPUs
    /// actively, so CPU time counts; since Linux 6.8 it may first sleep until another caller's wait is over.
    pub(crate) fn waited_ns(&self, latency_ns: u64) -> u64 {
        if self.has_slept() { latency_ns } else { (thread_cpu_ns() - self.cpu_ns).min(latency_ns) }
    }

    /// Whether the caller has slept since then.
    pub(crate) fn has_slept(&self) -> bool {
        Self::by_caller().sleeps > self.sleeps
    }
}

/// CPU time of another thread; 0 if the C library has no clock for it.
pub(crate) fn cpu_ns_of(thread: &JoinHandle<()>) -> u64 {
    let mut clock = 0;
    // The cast is there because `std` and libc disagree about the type on musl.
    // SAFETY: the handle is neither joined nor detached, so the thread's id is valid; `clock` is, for the call.
    let failed = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t() as _, &raw mut clock) } != 0;
    if failed { 0 } else { read(clock) }
}

/// Returns 0 for a clock that no longer exists because its thread has ended.
fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec for the length of the call.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec as u64 * SECOND_NS + t.tv_nsec as u64
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn sleep_and_execution_are_waits() {
        const SPAN_NS: u64 = 1 << 40;
        let before = Executed::by_caller();
        assert!(before.waited_ns(SPAN_NS) < SPAN_NS, "it has not slept");
        let (begun, cpu_ns) = (Instant::now(), thread_cpu_ns());
        while thread_cpu_ns() - cpu_ns < 1_000_000 && begun.elapsed() < Duration::from_secs(20) {}
        let waited_ns = before.waited_ns(SPAN_NS);
        assert!((1_000_000..SPAN_NS).contains(&waited_ns), "{waited_ns}");
        std::thread::sleep(Duration::from_micros(1));
        assert_eq!(before.waited_ns(SPAN_NS), SPAN_NS);
    }
}
