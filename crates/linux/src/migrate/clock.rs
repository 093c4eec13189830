//! The clock of the daemon: CLOCK_MONOTONIC, which stands still while the machine is suspended and is never set.

use reprieve_policy::beat::Work;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{ClockId as TimeClock, Timespec, clock_gettime};

/// Now, ns.
pub fn now_ns() -> u64 {
    to_ns(clock_gettime(TimeClock::Monotonic))
}

/// Now in clock ticks since boot, as start times of tasks are counted; time while the machine was suspended included.
pub fn boot_ticks() -> u64 {
    ticks(to_ns(clock_gettime(TimeClock::Boottime)))
}

/// That many whole clock ticks.
pub fn ticks(ns: u64) -> u64 {
    ns / (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// A time on this clock before which a task with this start time, in clock ticks since boot, has not begun, ns: up to a tick
/// early, and more if the machine was suspended since.
pub fn began_ns(start_ticks: u64) -> u64 {
    let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let age_ns =
        to_ns(clock_gettime(TimeClock::Boottime)).saturating_sub(start_ticks.saturating_mul(ns_per_tick));
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

/// How much a thread works, by its own clock.
#[derive(Debug)]
pub struct Meter {
    work: Work,
    cpu_ns: u64,
}

impl Meter {
    /// From now on, for the calling thread.
    pub fn start() -> Meter {
        Meter { work: Work::default(), cpu_ns: thread_cpu_ns() }
    }

    /// The work since this was last called by the same thread, ns.
    pub fn step(&mut self) -> u64 {
        let cpu_ns = thread_cpu_ns();
        let spent_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.cpu_ns, cpu_ns));
        self.work.step(spent_ns)
    }
}

/// Sleeps until then. A signal may end it early, which does no harm: what comes early is not late.
pub fn sleep_until(at_ns: u64) {
    let at = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as _ };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

fn to_ns(time: Timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
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
