//! The host's own account of a window: what each vCPU's thread got, and what everybody else took.

use reprieve_linux::proc::{ProcRoot, SchedStat, SchedStatReader};
use reprieve_study::observation::VcpuTime;

use crate::error::VmError;

/// Readings at the start of a window.
pub struct HostBooks {
    vcpus: Vec<(SchedStatReader, SchedStat)>,
    pcpus: Vec<usize>,
    ours: Vec<i32>,
    ours_ns: u64,
    all_ns: u64,
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
        let (ours_ns, all_ns) = (spent_by(proc_root, &ours)?, spent_on(proc_root, pcpus)?);
        Ok(HostBooks { vcpus, pcpus: pcpus.to_vec(), ours, ours_ns, all_ns })
    }

    /// What each vCPU got since, and the share of the pCPUs' time that went to others: to other processes and,
    /// where the host is itself a virtual machine, to what its own hypervisor took away. What we did on other
    /// pCPUs is taken for done here, so the share is a lower bound where there are more.
    pub fn close(&self, proc_root: &ProcRoot, window_ns: u64) -> Result<(Vec<VcpuTime>, f64), VmError> {
        let all_ns = spent_on(proc_root, &self.pcpus)?.saturating_sub(self.all_ns);
        let ours_ns = spent_by(proc_root, &self.ours)?.saturating_sub(self.ours_ns);
        let got = |(reader, first): &(SchedStatReader, SchedStat)| -> Result<VcpuTime, VmError> {
            let last = reader.read()?;
            Ok(VcpuTime {
                run_ns: last.run_ns.saturating_sub(first.run_ns),
                delay_ns: last.delay_ns.saturating_sub(first.delay_ns),
            })
        };
        let vcpus = self.vcpus.iter().map(got).collect::<Result<_, _>>()?;
        let whole_ns = (window_ns * self.pcpus.len() as u64).max(1);
        Ok((vcpus, all_ns.saturating_sub(ours_ns) as f64 / whole_ns as f64))
    }
}

fn spent_by(proc_root: &ProcRoot, pids: &[i32]) -> Result<u64, VmError> {
    pids.iter().map(|pid| Ok(proc_root.process_cpu_ns(*pid)?)).sum()
}

fn spent_on(proc_root: &ProcRoot, pcpus: &[usize]) -> Result<u64, VmError> {
    let times = proc_root.cpu_times()?;
    let here = times.per_cpu.iter().filter(|time| pcpus.contains(&time.cpu));
    Ok(here.map(|time| time.busy_ns + time.steal_ns).sum())
}
