//! CLOCK_MONOTONIC in nanoseconds, which nobody sets and which stops while the machine is suspended: the clock of beats, bursts,
//! looks and scheduling events, so that their times compare.

use reprieve_policy::SECOND_NS;
use reprieve_policy::beat::Work;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{ClockId as TimeClock, Timespec, clock_gettime};

use crate::proc::tick_ns;

/// The current time, ns.
pub fn now_ns() -> u64 {
    to_ns(clock_gettime(TimeClock::Monotonic))
}

/// The current time in clock ticks since boot, like the start times of tasks. Includes time while suspended.
pub(crate) fn boot_ticks() -> u64 {
    ticks(to_ns(clock_gettime(TimeClock::Boottime)))
}

/// Converts ns to whole clock ticks.
pub(crate) fn ticks(ns: u64) -> u64 {
    ns / tick_ns()
}

/// Converts a task's start time, in clock ticks since boot, to this clock, ns. The result may be early, never late: by
/// up to a tick, and by the time the machine has since been suspended.
pub(crate) fn began_ns(start_ticks: u64) -> u64 {
    let age_ns =
        to_ns(clock_gettime(TimeClock::Boottime)).saturating_sub(start_ticks.saturating_mul(tick_ns()));
    now_ns().saturating_sub(age_ns)
}

/// CPU time that this process has used, ns.
pub fn own_cpu_ns() -> u64 {
    to_ns(clock_gettime(TimeClock::ProcessCPUTime))
}

/// CPU time that the calling thread has used, ns.
pub fn thread_cpu_ns() -> u64 {
    to_ns(clock_gettime(TimeClock::ThreadCPUTime))
}

/// Measures a thread's work by its own CPU clock.
#[derive(Debug)]
pub(crate) struct Meter {
    work: Work,
    cpu_ns: u64,
}

impl Meter {
    /// Starts to measure the calling thread.
    pub fn start() -> Meter {
        Meter { work: Work::default(), cpu_ns: thread_cpu_ns() }
    }

    /// The work since the last call, ns. Call it from the same thread.
    pub fn step(&mut self) -> u64 {
        let cpu_ns = thread_cpu_ns();
        let spent_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.cpu_ns, cpu_ns));
        self.work.step(spent_ns)
    }
}

/// Sleeps until this time. A signal may end the sleep early, which does no harm: an early beat is not late.
pub fn sleep_until(at_ns: u64) {
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(at_ns));
}

/// The time as system calls take it.
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / SECOND_NS) as i64, tv_nsec: (ns % SECOND_NS) as _ }
}

pub(crate) fn to_ns(time: Timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(SECOND_NS).saturating_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ticks_are_those_of_start_times() {
        let before = boot_ticks();
        let child = std::process::Command::new("sleep").arg("100").spawn();
        let mut child = child.unwrap();
        let start = crate::proc::ProcRoot::default().start_time_ticks(child.id() as i32).unwrap();
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!((before..=boot_ticks()).contains(&start), "{before} {start}");
    }
}
