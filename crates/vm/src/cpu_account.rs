//! The CPU time of a measured window, by the host's accounting: what each vCPU's thread got, and what processes outside the
//! experiment took.

use std::time::Instant;

use reprieve_linux::proc::{ForeignCpu, ProcRoot, SchedStat, SchedStatReader};
use reprieve_study::observation::VcpuTime;

use crate::Result;

/// Readings at the start of a window.
pub struct CpuAccount {
    /// When it began.
    pub opened: Instant,
    vcpus: Vec<(SchedStatReader, SchedStat)>,
    ours: Vec<i32>,
    ours_ns: u64,
    pcpus: ForeignCpu,
}

/// The CPU time of a window.
pub struct Spent {
    /// Its length.
    pub window_ns: u64,
    /// What each vCPU got.
    pub vcpus: Vec<VcpuTime>,
    /// The share of the pCPUs' time that went to processes outside the experiment.
    pub foreign_share: f64,
}

impl CpuAccount {
    /// Takes the first readings. `pcpus` are those that the vCPUs are pinned to. `ours` are processes that belong to the
    /// experiment besides QEMU and this one.
    pub fn open(
        proc_root: &ProcRoot,
        machine: i32,
        tids: &[i32],
        pcpus: &[usize],
        ours: &[i32],
    ) -> Result<CpuAccount> {
        let open = |tid: &i32| -> Result<_> {
            let reader = SchedStatReader::open(proc_root, machine, *tid)?;
            let first = reader.read()?;
            Ok((reader, first))
        };
        let vcpus = tids.iter().map(open).collect::<Result<_, _>>()?;
        let mut ours = ours.to_vec();
        ours.extend([machine, std::process::id() as i32]);
        let (ours_ns, pcpus) = (spent_by(proc_root, &ours)?, ForeignCpu::open(proc_root, pcpus)?);
        Ok(CpuAccount { opened: Instant::now(), vcpus, ours, ours_ns, pcpus })
    }

    /// The window ends.
    pub fn close(&self, proc_root: &ProcRoot) -> Result<Spent> {
        let window_ns = self.opened.elapsed().as_nanos() as u64;
        let ours_ns = spent_by(proc_root, &self.ours)?.saturating_sub(self.ours_ns);
        let foreign_share = self.pcpus.share(proc_root, ours_ns)?;
        let got = |(reader, first): &(SchedStatReader, SchedStat)| -> Result<VcpuTime> {
            let last = reader.read()?;
            Ok(VcpuTime {
                run_ns: last.run_ns.saturating_sub(first.run_ns),
                delay_ns: last.delay_ns.saturating_sub(first.delay_ns),
            })
        };
        let vcpus = self.vcpus.iter().map(got).collect::<Result<_, _>>()?;
        Ok(Spent { window_ns, vcpus, foreign_share })
    }
}

fn spent_by(proc_root: &ProcRoot, pids: &[i32]) -> Result<u64> {
    pids.iter().map(|pid| Ok(proc_root.process_cpu_ns(*pid)?)).sum()
}
