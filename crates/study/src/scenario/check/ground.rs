//! What a ground cannot do is refused, with the key at fault.

use super::{bad, within};
use crate::scenario::{
    Accelerator, BadScenario, Condition, GroundKind, Scenario, SchedulerKind, Workload, XenVersion,
};

pub(in crate::scenario) const ONLY_SIM: &str =
    "only the simulator can do that; run it with --on sim, or remove it";
const ONLY_SET: &str = "on real threads a condition is what it sets, and nothing else; remove it";
const ONLY_VM: &str = "only real guests can do that; run it with --on vm, or remove it";
/// Series of kernels that the simulator tells apart.
const MODELLED_KERNELS: [&str; 2] = ["6.1", "6.12"];
const NOT_VM: &str = "only the simulator and real Xen can do that; run it with --on sim, or remove it";
const NOT_XEN: &str = "real Xen cannot do that; run it with --on sim, or remove it";

impl Scenario {
    /// Refuses what only another ground can do.
    pub(super) fn check_ground(&self) -> Result<(), BadScenario> {
        let guest = &self.guest;
        let is_modelled = self.ground == GroundKind::Sim && MODELLED_KERNELS.contains(&guest.kernel.as_str());
        let only_vm = [
            ("guest.kernel", !guest.kernel.is_empty() && !is_modelled),
            ("guest.append", !guest.append.is_empty()),
            ("guest.accelerator", guest.accelerator != Accelerator::Auto),
        ];
        if !self.workload.grounds().contains(&self.ground) {
            return Err(self.workload.not_on(self.ground));
        }
        match self.ground {
            GroundKind::Threads => self.check_program(),
            GroundKind::Sim => refuse("", &only_vm, ONLY_VM),
            GroundKind::Xen => {
                refuse("", &only_vm, NOT_XEN)?;
                self.check_real_xen()
            }
            GroundKind::Vm => self.check_real_workload(),
        }
    }

    /// What a workload in a real guest cannot do.
    fn check_real_workload(&self) -> Result<(), BadScenario> {
        let used = match &self.workload {
            Workload::Memory(memory) => ("workload.batched", memory.batched),
            Workload::Clone(clones) => ("workload.computing", clones.computing > 0),
            Workload::Postmark(postmark) => ("workload.think_us", postmark.think_us > 0),
            Workload::DeleteFree(asked) => return self.check_guest_program(asked),
            _ => return Ok(()),
        };
        refuse("", &[used], ONLY_SIM)
    }

    /// What can be asked of the packaged Xen, and of a guest without devices.
    fn check_real_xen(&self) -> Result<(), BadScenario> {
        let (host, xen) = (&self.host, &self.host.xen);
        if !matches!(host.scheduler, SchedulerKind::Credit | SchedulerKind::Credit2) {
            return bad("host.scheduler", "real Xen is run with credit or credit2");
        }
        if xen.version != XenVersion::V4_17 {
            return bad("host.xen.version", "the packages have 4.17");
        }
        if !xen.fixes.is_empty() {
            return bad("host.xen.fixes", NOT_XEN);
        }
        within("guest.vcpus", self.guest.vcpus as u64, 1, 1)
    }

    /// Refuses what this ground's host cannot do to the machine under test.
    pub(super) fn check_condition_s_ground(
        &self,
        prefix: &str,
        condition: &Condition,
    ) -> Result<(), BadScenario> {
        let unobserved = ("unobserved", condition.unobserved);
        let spinners = ("spinners", condition.spinners > 0);
        let of_linux = [
            ("quota", !condition.quota.is_empty()),
            ("neighbours", condition.neighbours > 0),
            ("hogs", condition.hogs > 0),
            ("bursts", condition.bursts.is_some()),
        ];
        let pauses = ("pauses", !condition.pauses.is_empty());
        let only_sim = [
            ("overcommit", condition.overcommit != 0.0),
            ("spikes", !condition.spikes.is_empty()),
            ("replay", !condition.replay.is_empty()),
            ("without", !condition.without.is_empty()),
        ];
        match self.ground {
            GroundKind::Sim => refuse(prefix, &[unobserved, ("bursts", condition.bursts.is_some())], ONLY_VM),
            GroundKind::Vm => {
                refuse(prefix, &[spinners], NOT_VM)?;
                refuse(prefix, &only_sim, ONLY_SIM)?;
                self.check_fio_s_condition(prefix, condition)
            }
            GroundKind::Xen => {
                refuse(prefix, &of_linux, NOT_XEN)?;
                refuse(prefix, &only_sim, NOT_XEN)?;
                refuse(prefix, &[unobserved, pauses], NOT_XEN)
            }
            GroundKind::Threads => {
                refuse(prefix, &of_linux, ONLY_SET)?;
                refuse(prefix, &only_sim, ONLY_SET)?;
                let others = [("pcpus", !condition.pcpus.is_empty()), spinners, unobserved, pauses];
                refuse(prefix, &others, ONLY_SET)
            }
        }
    }
}

/// Refuses the first of these keys that is used.
fn refuse(prefix: &str, keys: &[(&str, bool)], why: &str) -> Result<(), BadScenario> {
    match keys.iter().find(|(_, used)| *used) {
        Some((key, _)) => bad(format!("{prefix}{key}"), why),
        None => Ok(()),
    }
}
