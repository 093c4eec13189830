//! Foreign CPU time: how much of some CPUs' time during a measurement went to other processes.
//!
//! Busy time is computed as elapsed time less idle time, because the kernel measures idle time exactly. It counts busy
//! time in ticks, which can be wrong by a fifth when a short quota runs in step with the tick. Source: proc_stat(5).

use std::time::Instant;

use super::ProcRoot;
use crate::Result;

/// Measures foreign CPU time on some CPUs, from [`ForeignCpu::open`] on.
#[derive(Debug)]
pub struct ForeignCpu {
    cpus: Vec<usize>,
    opened: Instant,
    idle_ns: u64,
}

impl ForeignCpu {
    /// Starts to measure these CPUs.
    pub fn open(root: &ProcRoot, cpus: &[usize]) -> Result<ForeignCpu> {
        let (opened, idle_ns) = (Instant::now(), root.idle_ns(cpus)?);
        Ok(ForeignCpu { cpus: cpus.to_vec(), opened, idle_ns })
    }

    /// The share (0 to 1) of these CPUs' time since the start that was foreign: used by other processes or, if the host
    /// is itself a virtual machine, stolen by its hypervisor. `ours_ns` is the CPU time of this program's own processes
    /// since then. It counts in full, so if they also ran on other CPUs, the share is a lower bound.
    pub fn share(&self, root: &ProcRoot, ours_ns: u64) -> Result<f64> {
        let whole_ns = self.opened.elapsed().as_nanos() as u64 * self.cpus.len() as u64;
        let idle_ns = root.idle_ns(&self.cpus)?.saturating_sub(self.idle_ns);
        Ok(foreign_share(whole_ns, idle_ns, ours_ns))
    }
}

fn foreign_share(whole_ns: u64, idle_ns: u64, ours_ns: u64) -> f64 {
    let foreign_ns = whole_ns.saturating_sub(idle_ns).saturating_sub(ours_ns);
    foreign_ns as f64 / whole_ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    #[test]
    fn time_neither_idle_nor_ours_is_foreign() {
        assert_eq!(foreign_share(2_000, 1_000, 600), 0.2);
        assert_eq!(foreign_share(2_000, 2_100, 600), 0.0, "the clocks are read one after the other");
        assert_eq!(foreign_share(0, 0, 0), 0.0);
    }

    #[test]
    fn time_without_idle_time_is_foreign() {
        let proc = FakeProc::new();
        proc.put("stat", "cpu0 0 0 0 100 0 0 0 0\ncpu1 0 0 0 7 1 0 0 0\n");
        let foreign = ForeignCpu::open(&proc.root, &[1]).unwrap();
        // The idle time has not changed since then.
        assert_eq!(foreign.share(&proc.root, 0).unwrap(), 1.0);
    }
}
