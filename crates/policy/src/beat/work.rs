//! CPU time of work that is done in steps, told from time in which the vCPU was off.
//!
//! A guest that does not see its host's scheduler (emulation, or no steal) books the time that a vCPU is off as CPU time of
//! whoever was on it, which is many times what a daemon needs. A pace that kept within its budget by that clock would beat
//! most slowly where vCPUs are off most. Steps of one kind cost about the same, so one that seems to have cost many times the
//! median was interrupted.

use super::frugal::Frugal;

/// A step counts for so many medians at the most.
const MOST: u64 = 4;

/// What the steps of one thread cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    cost: Frugal,
}

impl Work {
    /// Takes in the CPU time of a step by the thread's clock, ns; how much of it counts as work. The first few steps, which
    /// say what is ordinary, count for less than they cost.
    pub fn step(&mut self, cpu_ns: u64) -> u64 {
        self.cost.learn(cpu_ns);
        cpu_ns.min(MOST * self.cost.ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn time_off_is_no_work_however_often() {
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
