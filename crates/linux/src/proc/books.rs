//! The account of some CPUs over a stretch of time: how much of it went to others.
//!
//! Busy time is the stretch less idle time, since the kernel measures idle time exactly; its busy times are counted in
//! ticks, and come out wrong by a fifth when a short quota runs in step with the tick. Source: proc_stat(5).

use std::time::Instant;

use super::ProcRoot;
use crate::error::Result;

/// An account of some CPUs, open since its start.
#[derive(Debug)]
pub struct CpuBooks {
    cpus: Vec<usize>,
    opened: Instant,
    idle_ns: u64,
}

impl CpuBooks {
    /// Opens the account of these CPUs.
    ///
    /// # Errors
    /// What [`ProcRoot::cpu_times`] gives.
    pub fn open(root: &ProcRoot, cpus: &[usize]) -> Result<CpuBooks> {
        let (opened, idle_ns) = (Instant::now(), idle_on(root, cpus)?);
        Ok(CpuBooks { cpus: cpus.to_vec(), opened, idle_ns })
    }

    /// The share (0 to 1) of these CPUs' time since the start that went to others: to other processes and, where the
    /// host is itself a virtual machine, to what its own hypervisor took away. `ours_ns` is the CPU time that our own
    /// processes took meanwhile; it is taken for taken here, so the share is a lower bound where they ran elsewhere, too.
    ///
    /// # Errors
    /// What [`ProcRoot::cpu_times`] gives.
    pub fn foreign_share(&self, root: &ProcRoot, ours_ns: u64) -> Result<f64> {
        let whole_ns = self.opened.elapsed().as_nanos() as u64 * self.cpus.len() as u64;
        let idle_ns = idle_on(root, &self.cpus)?.saturating_sub(self.idle_ns);
        Ok(foreign_share(whole_ns, idle_ns, ours_ns))
    }
}

fn foreign_share(whole_ns: u64, idle_ns: u64, ours_ns: u64) -> f64 {
    let foreign_ns = whole_ns.saturating_sub(idle_ns).saturating_sub(ours_ns);
    foreign_ns as f64 / whole_ns.max(1) as f64
}

fn idle_on(root: &ProcRoot, cpus: &[usize]) -> Result<u64> {
    let times = root.cpu_times()?;
    Ok(times.per_cpu.iter().filter(|time| cpus.contains(&time.cpu)).map(|time| time.idle_ns).sum())
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_ours_went_to_others() {
        assert_eq!(foreign_share(2_000, 1_000, 600), 0.2);
        assert_eq!(foreign_share(2_000, 2_100, 600), 0.0, "the clocks are not read at once");
        assert_eq!(foreign_share(0, 0, 0), 0.0);
    }

    #[test]
    fn only_the_named_cpus_count() {
        let proc = FakeProc::new();
        proc.put("stat", "cpu0 0 0 0 100 0 0 0 0\ncpu1 0 0 0 7 1 0 0 0\ncpu2 0 0 0 5 0 0 0 0\n");
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(idle_on(&proc.root, &[1, 2]).unwrap(), 13 * tick_ns);
        let books = CpuBooks::open(&proc.root, &[1]).unwrap();
        // Since then no time was idle.
        assert_eq!(books.foreign_share(&proc.root, 0).unwrap(), 1.0);
    }
}
