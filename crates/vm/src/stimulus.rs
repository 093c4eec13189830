//! Puts a condition into force on a running guest: pinning, quotas, busy processes, bursts, pauses. Undoes everything on
//! drop.

use std::time::Instant;

use reprieve_linux::boost::{Boosting, Given, Limited};
use reprieve_linux::cgroup::{Cgroups, Quota, QuotaTree, unique_name};
use reprieve_linux::hogs::Hog;
use reprieve_linux::threads::{self, FifoGuard};
use reprieve_linux::warden::Guarded;
use reprieve_study::Condition;
use reprieve_study::scenario::{BadScenario, Boost, VcpuQuota};

use crate::bursts::{self, Running, Timing};
use crate::host::{Guard, Host};
use crate::introspect::Reader;
use crate::pauses::Pauses;
use crate::qemu::Machine;
use crate::{Result, boosting};

/// A condition in force.
pub struct Stimulus {
    // Fields drop in order: bursts must end before QEMU's device threads lose their real-time priority.
    bursts: Option<(Running, Vec<FifoGuard>)>,
    pauses: Option<Pauses>,
    // Each object is removed before its guard lets the warden forget it.
    hogs: Vec<(Hog, Guard)>,
    // Boosts write the quotas.
    boosting: Option<Boosting>,
    quotas: Option<(QuotaTree, Guard)>,
    limits: Vec<Limited>,
}

impl Stimulus {
    /// The pCPUs that a condition uses. An error if this process may not use one of them.
    pub fn pcpus(name: &str, condition: &Condition, allowed: &[usize]) -> Result<Vec<usize>> {
        if condition.pcpus.is_empty() {
            return Ok(allowed.to_vec());
        }
        if let Some(other) = condition.pcpus.iter().find(|pcpu| !allowed.contains(pcpu)) {
            let known: Vec<String> = allowed.iter().map(usize::to_string).collect();
            let problem =
                format!("there is no pCPU {other} for this process; there are {}", known.join(", "));
            return Err(BadScenario { key: format!("conditions.{name}.pcpus"), problem }.into());
        }
        Ok(condition.pcpus.clone())
    }

    /// The pCPUs that this many vCPUs are pinned to.
    pub fn used(vcpus: usize, pcpus: &[usize]) -> &[usize] {
        &pcpus[..vcpus.min(pcpus.len())]
    }

    /// Pins a machine's vCPUs to pCPUs, round robin. QEMU's other threads stay unpinned: its main thread delivers the
    /// guest's timers and must not wait for a vCPU.
    pub fn pin(machine: &Machine, pcpus: &[usize]) -> Result<()> {
        for (tid, pcpu) in machine.vcpu_tids.iter().zip(pcpus.iter().cycle()) {
            threads::set_affinity(*tid, &[*pcpu])?;
        }
        Ok(())
    }

    /// Puts quotas, busy processes and bursts into force on a pinned machine.
    pub fn apply(
        condition: &Condition,
        machine: &Machine,
        pcpus: &[usize],
        host: &Host,
        timing: Timing,
    ) -> Result<Stimulus> {
        let mut stimulus = Stimulus {
            bursts: None,
            pauses: None,
            hogs: Vec::new(),
            boosting: None,
            quotas: None,
            limits: Vec::new(),
        };
        if !condition.quota.is_empty() {
            stimulus.limit(&condition.quota, machine, host)?;
        }
        let args: Vec<&str> = host.hog.args.iter().map(String::as_str).collect();
        for pcpu in Stimulus::used(machine.vcpu_tids.len(), pcpus) {
            for _ in 0..condition.hogs {
                let hog = Hog::spawn(&host.hog.exe, &args, Some(*pcpu))?;
                let guard = host.guard_process(hog.pid())?;
                stimulus.hogs.push((hog, guard));
            }
        }
        if let Some(bursts) = condition.bursts {
            let raised = bursts::raise(&machine.other_tids(&host.proc_root)?)?;
            let used = Stimulus::used(machine.vcpu_tids.len(), pcpus);
            stimulus.bursts = Some((Running::start(bursts, used, timing)?, raised));
        }
        Ok(stimulus)
    }

    /// Schedules the pauses for a window that begins at `start`.
    pub fn pause(&mut self, condition: &Condition, machine: &Machine, start: Instant) -> Result<()> {
        self.pauses = Some(Pauses::start(&condition.pauses, &machine.vcpu_tids, start)?);
        Ok(())
    }

    /// Begins to boost the vCPUs with a quota, if the condition has such a remedy. The times of unaimed boosts follow from
    /// the seed.
    pub fn boost(
        &mut self,
        condition: &Condition,
        settings: &Boost,
        seed: u64,
        guest: Reader,
        on: (&Machine, &Host),
    ) -> Result<()> {
        self.boosting = boosting::start(condition, settings, seed, guest, on, self.limits.clone())?;
        Ok(())
    }

    /// What boosts have given so far; `None` if there are none.
    pub fn boosted(&self) -> Option<Given> {
        self.boosting.as_ref().map(Boosting::given)
    }

    /// Ends the boosts, if there are any. Gives what was not permitted.
    ///
    /// # Errors
    /// Why they ended too early.
    pub fn end_boosts(&mut self) -> Result<Vec<String>> {
        Ok(self.boosting.take().map_or(Ok(Vec::new()), Boosting::finish)?)
    }

    /// Process ids of the busy processes.
    pub fn hog_pids(&self) -> Vec<i32> {
        self.hogs.iter().map(|(hog, _)| hog.pid()).collect()
    }

    fn limit(&mut self, quotas: &[VcpuQuota], machine: &Machine, host: &Host) -> Result<()> {
        let cgroups = Cgroups::detect(&host.proc_root)?;
        let name = unique_name(&host.proc_root)?;
        // Guard it before creating it, so that a kill in between leaves nothing behind.
        let guard = host.guard(Guarded::Cgroup(cgroups.path_of(&name)))?;
        let tree = cgroups.create(&name)?;
        let (tree, _) = self.quotas.insert((tree, guard));
        tree.adopt_process(machine.pid())?;
        for quota in quotas {
            let period_us = quota.period_ms * 1000;
            let label = format!("vcpu{}", quota.vcpu);
            let limit =
                Quota::from_percent(quota.percent, period_us)?.with_burst_us(quota.burst_ms * 1000)?;
            let group = tree.quota_group(&label, limit)?;
            self.limits.push(Limited { directory: tree.directory.join(label), vcpus: vec![quota.vcpu] });
            // The check of the scenario made sure that every quota names an existing vCPU.
            tree.assign(machine.vcpu_tids[quota.vcpu], group)?;
        }
        Ok(())
    }
}

impl Drop for Stimulus {
    fn drop(&mut self) {
        drop(self.boosting.take());
        if let Some((tree, mut guard)) = self.quotas.take()
            && tree.close().is_err()
        {
            guard.leave_to_warden();
        }
    }
}
