//! The CPU time that a thread's own work took, without the time in which its vCPU was off.
//!
//! A guest without steal (under emulation, for example) charges the time a vCPU is off to the thread that ran on it, as
//! CPU time: many times what a daemon needs. A daemon that kept its budget by that clock would beat most slowly exactly
//! where vCPUs are off most. Steps of one kind cost about the same, so a step that seems to cost many times the median
//! was interrupted, and counts for at most [`MOST_MEDIANS`] medians.

use super::frugal::Median;

/// The most that one step counts for, in medians.
const MOST_MEDIANS: u64 = 4;

/// Meters the steps of one thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    cost: Median,
}

impl Work {
    /// Takes in a step's CPU time by the thread's clock, ns, and returns how much of it counts as work. The first few
    /// steps count for less than they cost, because the median is still rising from 0.
    pub fn step(&mut self, cpu_ns: u64) -> u64 {
        self.cost.learn(cpu_ns);
        cpu_ns.min(MOST_MEDIANS * self.cost.ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn frequent_time_off_does_not_count_as_work() {
        let mut work = Work::default();
        // One step in five is interrupted for 25 ms.
        let counted = |i: u64, work: &mut Work| work.step(if i % 5 == 4 { 25 * MS } else { 40 * US });
        let _: u64 = (0..1_000).map(|i| counted(i, &mut work)).sum();
        let counted_ns: u64 = (0..1_000).map(|i| counted(i, &mut work)).sum();
        assert!((40 * MS..100 * MS).contains(&counted_ns), "{counted_ns}");
    }

    #[test]
    fn work_that_grows_counts() {
        let mut work = Work::default();
        let _: u64 = (0..1_000).map(|_| work.step(40 * US)).sum();
        let _: u64 = (0..1_000).map(|_| work.step(400 * US)).sum();
        assert_eq!(work.step(400 * US), 400 * US);
    }
}
