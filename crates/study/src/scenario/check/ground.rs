//! Refuses what a ground cannot do, with the key at fault.

use super::{bad, refuse_if, within};
use crate::scenario::{
    Accelerator, Condition, GroundKind, Result, Scenario, SchedulerKind, Workload, XenVersion,
};

pub(in crate::scenario) const ONLY_SIM: &str =
    "only the simulator can do that; run it with --on sim, or remove it";
const ONLY_SET: &str = "on real threads a condition is what it sets, and nothing else; remove it";
const ONLY_VM: &str = "only real guests can do that; run it with --on vm, or remove it";
/// Series of kernels that the simulator distinguishes.
const MODELLED_KERNELS: [&str; 2] = ["6.1", "6.12"];
const NOT_VM: &str = "only the simulator and real Xen can do that; run it with --on sim, or remove it";
const NOT_XEN: &str = "real Xen cannot do that; run it with --on sim, or remove it";

impl Scenario {
    /// Refuses what only another ground can do.
    pub(super) fn check_ground(&self) -> Result {
        if !self.workload.grounds().contains(&self.ground) {
            return Err(self.workload.not_on(self.ground));
        }
        if self.ground == GroundKind::Threads {
            return self.check_program();
        }
        refuse("", &KEYS, self, self.ground)?;
        let kernel = self.guest.kernel.as_str();
        match (self.ground, &self.workload) {
            (GroundKind::Sim, _) if !kernel.is_empty() && !MODELLED_KERNELS.contains(&kernel) => {
                bad("guest.kernel", ONLY_VM)
            }
            (GroundKind::Xen, _) => self.check_real_xen(),
            (GroundKind::Vm, Workload::DeleteFree(asked)) => self.check_guest_program(asked),
            _ => Ok(()),
        }
    }

    /// Checks what the packaged Xen, and a guest without devices, can do.
    fn check_real_xen(&self) -> Result {
        let has_it = matches!(self.host.scheduler, SchedulerKind::Credit | SchedulerKind::Credit2);
        let problem = "real Xen runs with credit or credit2; set it to one of them";
        refuse_if(!has_it, "host.scheduler", problem)?;
        let problem = "real Xen is 4.17 here; set it to 4.17, or run it with --on sim";
        refuse_if(self.host.xen.version != XenVersion::V4_17, "host.xen.version", problem)?;
        within("guest.vcpus", self.guest.vcpus, 1, 1)
    }

    /// Refuses what this ground's host cannot do to the machine under test.
    pub(super) fn check_condition_on_ground(&self, prefix: &str, condition: &Condition) -> Result {
        refuse(prefix, &CONDITION_KEYS, condition, self.ground)?;
        match self.ground {
            GroundKind::Vm => self.check_condition_of_fio(prefix, condition),
            GroundKind::Sim | GroundKind::Threads | GroundKind::Xen => Ok(()),
        }
    }
}

/// A key of `T`, the grounds that can do it, and whether a `T` asks for it.
type GroundKey<T> = (&'static str, &'static [GroundKind], fn(&T) -> bool);

const SIM: &[GroundKind] = &[GroundKind::Sim];
const VM: &[GroundKind] = &[GroundKind::Vm];
const SIM_AND_VM: &[GroundKind] = &[GroundKind::Sim, GroundKind::Vm];
const KEYS: [GroundKey<Scenario>; 8] = [
    ("guest.kernel", SIM_AND_VM, |s| !s.guest.kernel.is_empty()),
    ("guest.append", VM, |s| !s.guest.append.is_empty()),
    ("guest.accelerator", VM, |s| s.guest.accelerator != Accelerator::Auto),
    ("host.xen.fixes", SIM, |s| !s.host.xen.fixes.is_empty()),
    ("run.attribute", SIM, |s| !s.run.attribute.is_empty()),
    ("workload.batched", SIM, |s| matches!(&s.workload, Workload::Memory(memory) if memory.batched)),
    ("workload.computing", SIM, |s| matches!(&s.workload, Workload::Clone(clones) if clones.computing > 0)),
    (
        "workload.think_us",
        SIM,
        |s| matches!(&s.workload, Workload::Postmark(postmark) if postmark.think_us > 0),
    ),
];

const CONDITION_KEYS: [GroundKey<Condition>; 13] = [
    ("quota", SIM_AND_VM, |c| !c.quota.is_empty()),
    ("neighbours", SIM_AND_VM, |c| c.neighbours > 0),
    ("hogs", SIM_AND_VM, |c| c.hogs > 0),
    ("bursts", VM, |c| c.bursts.is_some()),
    ("spinners", &[GroundKind::Sim, GroundKind::Xen], |c| c.spinners > 0),
    ("overcommit", SIM, |c| c.overcommit != 0.0),
    ("spikes", SIM, |c| !c.spikes.is_empty()),
    ("replay", SIM, |c| !c.replay.is_empty()),
    ("without", SIM, |c| !c.without.is_empty()),
    ("remedies", SIM_AND_VM, |c| !c.remedies.is_empty()),
    ("pcpus", &[GroundKind::Sim, GroundKind::Vm, GroundKind::Xen], |c| !c.pcpus.is_empty()),
    ("unobserved", VM, |c| c.unobserved),
    ("pauses", SIM_AND_VM, |c| !c.pauses.is_empty()),
];

/// The grounds that can do what this key asks for; NAME stands for the condition's name.
pub(in crate::scenario) fn grounds_of(key: &str) -> &'static [GroundKind] {
    let grounds = match key.strip_prefix("conditions.NAME.") {
        Some(key) => {
            let first = key.split('.').next();
            CONDITION_KEYS.iter().find(|(name, ..)| Some(*name) == first).map(|(_, grounds, _)| *grounds)
        }
        None => KEYS.iter().find(|(name, ..)| *name == key).map(|(_, grounds, _)| *grounds),
    };
    grounds.unwrap_or(&GroundKind::ALL)
}

/// Refuses the first of these keys that is used and that this ground cannot do.
fn refuse<T>(prefix: &str, keys: &[GroundKey<T>], of: &T, ground: GroundKind) -> Result {
    let cannot = |(_, grounds, is_used): &&GroundKey<T>| is_used(of) && !grounds.contains(&ground);
    let Some((key, grounds, _)) = keys.iter().find(cannot) else { return Ok(()) };
    let why = match (ground, *grounds) {
        (GroundKind::Threads, _) => ONLY_SET,
        (GroundKind::Xen, _) => NOT_XEN,
        (_, [GroundKind::Vm]) => ONLY_VM,
        (_, [GroundKind::Sim]) => ONLY_SIM,
        _ => NOT_VM,
    };
    bad(format!("{prefix}{key}"), why)
}
