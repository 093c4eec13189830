//! The host's own account of a window: what each vCPU's thread got, and what everybody else took.
//!
//! Busy time is the window less idle time, since the kernel measures idle time exactly; its busy times are
//! counted in ticks, and come out wrong by a fifth when a short quota runs in step with the tick.

use std::time::Instant;

use reprieve_linux::proc::{ProcRoot, SchedStat, SchedStatReader};
use reprieve_study::observation::VcpuTime;

use crate::error::VmError;

/// Readings at the start of a window.
pub struct HostBooks {
    vcpus: Vec<(SchedStatReader, SchedStat)>,
    pcpus: Vec<usize>,
    ours: Vec<i32>,
    opened: Instant,
    ours_ns: u64,
    idle_ns: u64,
}

impl HostBooks {
    /// Opens the books. `pcpus` are those that the vCPUs are pinned to; `ours` are processes, besides the
    /// machine and this one, whose CPU time is part of the experiment.
    pub fn open(
        proc_root: &ProcRoot,
        machine: i32,
        tids: &[i32],
        pcpus: &[usize],
        ours: &[i32],
    ) -> Result<HostBooks, VmError> {
        let open = |tid: &i32| -> Result<_, VmError> {
            let reader = SchedStatReader::open(proc_root, machine, *tid)?;
            let first = reader.read()?;
            Ok((reader, first))
        };
        let vcpus = tids.iter().map(open).collect::<Result<_, _>>()?;
        let mut ours = ours.to_vec();
        ours.extend([machine, std::process::id() as i32]);
        let (opened, ours_ns, idle_ns) =
            (Instant::now(), spent_by(proc_root, &ours)?, idle_on(proc_root, pcpus)?);
        Ok(HostBooks { vcpus, pcpus: pcpus.to_vec(), ours, opened, ours_ns, idle_ns })
    }

    /// What each vCPU got since, and the share of the pCPUs' time that went to others: to other processes and,
    /// where the host is itself a virtual machine, to what its own hypervisor took away. What we did on other
    /// pCPUs is taken for done here, so the share is a lower bound where there are more.
    pub fn close(&self, proc_root: &ProcRoot) -> Result<(Vec<VcpuTime>, f64), VmError> {
        let whole_ns = self.opened.elapsed().as_nanos() as u64 * self.pcpus.len() as u64;
        let ours_ns = spent_by(proc_root, &self.ours)?.saturating_sub(self.ours_ns);
        let idle_ns = idle_on(proc_root, &self.pcpus)?.saturating_sub(self.idle_ns);
        let got = |(reader, first): &(SchedStatReader, SchedStat)| -> Result<VcpuTime, VmError> {
            let last = reader.read()?;
            Ok(VcpuTime {
                run_ns: last.run_ns.saturating_sub(first.run_ns),
                delay_ns: last.delay_ns.saturating_sub(first.delay_ns),
            })
        };
        let vcpus = self.vcpus.iter().map(got).collect::<Result<_, _>>()?;
        let foreign_ns = whole_ns.saturating_sub(idle_ns).saturating_sub(ours_ns);
        Ok((vcpus, foreign_ns as f64 / whole_ns.max(1) as f64))
    }
}

fn spent_by(proc_root: &ProcRoot, pids: &[i32]) -> Result<u64, VmError> {
    pids.iter().map(|pid| Ok(proc_root.process_cpu_ns(*pid)?)).sum()
}

fn idle_on(proc_root: &ProcRoot, pcpus: &[usize]) -> Result<u64, VmError> {
    let times = proc_root.cpu_times()?;
    Ok(times.per_cpu.iter().filter(|time| pcpus.contains(&time.cpu)).map(|time| time.idle_ns).sum())
}
