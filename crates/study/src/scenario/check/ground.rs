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

/// A key of `T` that some grounds cannot do.
struct GroundKey<T: 'static> {
    name: &'static str,
    grounds: &'static [GroundKind],
    is_used: fn(&T) -> bool,
}

const SIM: &[GroundKind] = &[GroundKind::Sim];
const VM: &[GroundKind] = &[GroundKind::Vm];
const SIM_AND_VM: &[GroundKind] = &[GroundKind::Sim, GroundKind::Vm];
const KEYS: [GroundKey<Scenario>; 8] = [
    GroundKey { name: "guest.kernel", grounds: SIM_AND_VM, is_used: |s| !s.guest.kernel.is_empty() },
    GroundKey { name: "guest.append", grounds: VM, is_used: |s| !s.guest.append.is_empty() },
    GroundKey {
        name: "guest.accelerator",
        grounds: VM,
        is_used: |s| s.guest.accelerator != Accelerator::Auto,
    },
    GroundKey { name: "host.xen.fixes", grounds: SIM, is_used: |s| !s.host.xen.fixes.is_empty() },
    GroundKey { name: "run.attribute", grounds: SIM, is_used: |s| !s.run.attribute.is_empty() },
    GroundKey {
        name: "workload.batched",
        grounds: SIM,
        is_used: |s| matches!(&s.workload, Workload::Memory(memory) if memory.batched),
    },
    GroundKey {
        name: "workload.computing",
        grounds: SIM,
        is_used: |s| matches!(&s.workload, Workload::Clone(clones) if clones.computing > 0),
    },
    GroundKey {
        name: "workload.think_us",
        grounds: SIM,
        is_used: |s| matches!(&s.workload, Workload::Postmark(postmark) if postmark.think_us > 0),
    },
];

const CONDITION_KEYS: [GroundKey<Condition>; 13] = [
    GroundKey { name: "quota", grounds: SIM_AND_VM, is_used: |c| !c.quota.is_empty() },
    GroundKey { name: "neighbours", grounds: SIM_AND_VM, is_used: |c| c.neighbours > 0 },
    GroundKey { name: "hogs", grounds: SIM_AND_VM, is_used: |c| c.hogs > 0 },
    GroundKey { name: "bursts", grounds: VM, is_used: |c| c.bursts.is_some() },
    GroundKey { name: "spinners", grounds: &[GroundKind::Sim, GroundKind::Xen], is_used: |c| c.spinners > 0 },
    GroundKey { name: "overcommit", grounds: SIM, is_used: |c| c.overcommit != 0.0 },
    GroundKey { name: "spikes", grounds: SIM, is_used: |c| !c.spikes.is_empty() },
    GroundKey { name: "replay", grounds: SIM, is_used: |c| !c.replay.is_empty() },
    GroundKey { name: "without", grounds: SIM, is_used: |c| !c.without.is_empty() },
    GroundKey { name: "remedies", grounds: SIM, is_used: |c| !c.remedies.is_empty() },
    GroundKey {
        name: "pcpus",
        grounds: &[GroundKind::Sim, GroundKind::Vm, GroundKind::Xen],
        is_used: |c| !c.pcpus.is_empty(),
    },
    GroundKey { name: "unobserved", grounds: VM, is_used: |c| c.unobserved },
    GroundKey { name: "pauses", grounds: SIM_AND_VM, is_used: |c| !c.pauses.is_empty() },
];

/// The grounds that can do what this key asks for; NAME stands for the condition's name.
pub(in crate::scenario) fn grounds_of(key: &str) -> &'static [GroundKind] {
    let grounds = match key.strip_prefix("conditions.NAME.") {
        Some(key) => {
            let first = key.split('.').next();
            CONDITION_KEYS.iter().find(|known| Some(known.name) == first).map(|known| known.grounds)
        }
        None => KEYS.iter().find(|known| known.name == key).map(|known| known.grounds),
    };
    grounds.unwrap_or(&GroundKind::ALL)
}

/// Refuses the first of these keys that is used and that this ground cannot do.
fn refuse<T>(prefix: &str, keys: &[GroundKey<T>], of: &T, ground: GroundKind) -> Result {
    let cannot = |key: &&GroundKey<T>| (key.is_used)(of) && !key.grounds.contains(&ground);
    let Some(key) = keys.iter().find(cannot) else { return Ok(()) };
    let why = match (ground, key.grounds) {
        (GroundKind::Threads, _) => ONLY_SET,
        (GroundKind::Xen, _) => NOT_XEN,
        (_, [GroundKind::Vm]) => ONLY_VM,
        (_, [GroundKind::Sim]) => ONLY_SIM,
        _ => NOT_VM,
    };
    bad(format!("{prefix}{}", key.name), why)
}
