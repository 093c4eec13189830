//! One condition: what the host does to the guest.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::remedy::Remedy;
use super::setting::{self, Setting};

/// One condition: what the host does to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Condition {
    /// One line that says what the condition is.
    pub label: String,
    /// CPU quotas of single vCPUs, at most one each. Not under Xen's credit schedulers.
    pub quota: Vec<VcpuQuota>,
    /// pCPUs that the vCPUs are pinned to, in turn; empty for all that this process may use.
    pub pcpus: Vec<usize>,
    /// Neighbour VMs, each with as many busy vCPUs as the guest has, on the same pCPUs.
    #[schemars(range(min = 0, max = 64))]
    pub neighbours: u32,
    /// Busy host processes on each of the guest's pCPUs.
    #[schemars(range(min = 0, max = 64))]
    pub hogs: u32,
    /// Real-time threads of the host that take the guest's pCPUs away in turn. Only in real guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
    /// VMs of one vCPU each that compute for ever, on the guest's pCPUs. Only on the simulator and on real
    /// Xen.
    #[schemars(range(min = 0, max = 64))]
    pub spinners: u32,
    /// Whether nobody looks at the guest's memory and scheduling, to learn the cost of observing. Only in
    /// real guests.
    pub unobserved: bool,
    /// Demand for CPU over supply: neighbour VMs with busy vCPUs are added until all VMs together have this
    /// many vCPUs for each pCPU. 0 for none, else 1 to 16. Only on the simulator.
    pub overcommit: f64,
    /// Times at which one vCPU is kept from running, at most 4096. On the simulator and in real guests,
    /// except for fio.
    pub pauses: Vec<Pause>,
    /// The file of a recording: the guest's vCPUs, which have a pCPU each, are kept from running when those
    /// of the recording were. Only on the simulator, and together with `label`, `without` and `set` alone.
    pub replay: String,
    /// Times at which a neighbour VM is busy, at most 1024. Only on the simulator.
    pub spikes: Vec<Spike>,
    /// Causes that the simulation leaves out, to learn how much of the effect each has. Only on the
    /// simulator.
    pub without: Vec<Cause>,
    /// What is done against preempted RCU readers, at most one remedy. On the simulator, except in a replay, and in real
    /// guests, where it needs a quota to work on.
    pub remedies: Vec<Remedy>,
    /// Keys of `guest`, `host`, `workload`, `observe` and `limits`, and the lengths of `run`, that have
    /// another value under this condition: `set = { guest.vcpus = 4 }`.
    #[serde(deserialize_with = "setting::flattened")]
    pub set: IndexMap<String, Setting>,
}

impl Condition {
    /// Whether the host disturbs the guest at all.
    pub fn is_undisturbed(&self) -> bool {
        let host = self.quota.is_empty() && self.pcpus.is_empty() && self.neighbours == 0 && self.hogs == 0;
        host && self.bursts.is_none()
            && self.spinners == 0
            && self.overcommit <= 1.0
            && self.pauses.is_empty()
            && self.replay.is_empty()
            && self.spikes.is_empty()
    }

    /// The condition after its settings were applied.
    pub(super) fn without_settings(&self) -> Condition {
        Condition { set: IndexMap::new(), ..self.clone() }
    }

    /// Whether this condition is `whole` with causes left out. The labels may differ; `whole` itself leaves out no
    /// cause.
    pub fn is_counterpart_of(&self, whole: &Condition) -> bool {
        let with_all = Condition { without: Vec::new(), label: whole.label.clone(), ..self.clone() };
        !self.without.is_empty() && with_all == *whole
    }

    /// Whether two conditions leave out the same causes, in any order.
    pub fn leaves_out_the_same_as(&self, other: &Condition) -> bool {
        let sorted = |condition: &Condition| {
            let mut causes = condition.without.clone();
            causes.sort_unstable();
            causes.dedup();
            causes
        };
        sorted(self) == sorted(other)
    }
}

/// The CPU time that one vCPU's thread may have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VcpuQuota {
    /// Which vCPU, from 0.
    pub vcpu: usize,
    /// CPU time that the vCPU may have, in per cent of one pCPU. At least 1 ms a period.
    #[schemars(range(min = 1.0, max = 100.0))]
    pub percent: f64,
    /// Period over which the time is accounted, in ms.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1_000))]
    pub period_ms: u64,
    /// CPU time that the vCPU leaves unused in its periods and may run later, at most, in ms (`cpu.max.burst`). No more than
    /// what it may run in a period.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1_000))]
    pub burst_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn hundred() -> u64 {
    100
}

/// A real-time thread on each of the guest's pCPUs that takes the pCPU away for a part of every period. The bursts of
/// the first pCPU begin with the period, and those of the others are spread over it evenly: with two pCPUs they are
/// in antiphase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// How long each burst lasts, in ms. At most nine tenths of the period.
    pub for_ms: u64,
    /// Period of the bursts, in ms.
    #[schemars(range(min = 2, max = 1_000))]
    pub every_ms: u64,
    /// Each burst begins up to this much earlier or later, uniformly, in ms. At most half of the time between two bursts.
    #[serde(default)]
    pub jitter_ms: u64,
    /// The vCPU, from 0, whose pCPU is taken away; if absent, the pCPU of each.
    #[serde(default)]
    pub vcpu: Option<usize>,
}

/// A time at which the host keeps one vCPU from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Which vCPU, from 0.
    pub vcpu: usize,
    /// When it begins, in ms from the window's start.
    pub at_ms: u64,
    /// How long it lasts, in ms. It ends within the window.
    pub for_ms: u64,
}

/// A time at which a neighbour VM is busy that is otherwise idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spike {
    /// When it begins, in ms from the window's start.
    pub at_ms: u64,
    /// How long it lasts, in ms. It ends within the window.
    pub for_ms: u64,
    /// Busy vCPUs of the neighbour VM, spread over the pCPUs.
    #[schemars(range(min = 1, max = 1_024))]
    pub vcpus: u32,
}

/// The ways in which overcommitment harms a guest. The simulator can leave out each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A vCPU is descheduled within an RCU reader, and holds up the grace period.
    ReaderPreemption,
    /// A vCPU is descheduled while it holds a lock, and others spin for it.
    LockHolderPreemption,
    /// Context switches between vCPUs, and the cold caches after them.
    ContextSwitches,
    /// The guest gets less CPU time.
    CpuShare,
    /// Memory that waits for grace periods makes allocations slow, or stalls them.
    MemoryPressure,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 5] = [
        Cause::ReaderPreemption,
        Cause::LockHolderPreemption,
        Cause::ContextSwitches,
        Cause::CpuShare,
        Cause::MemoryPressure,
    ];

    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Cause::ReaderPreemption => "RCU-reader preemption",
            Cause::LockHolderPreemption => "lock-holder preemption",
            Cause::ContextSwitches => "context switches",
            Cause::CpuShare => "less CPU time",
            Cause::MemoryPressure => "memory pressure",
        }
    }
}

/// The name in a scenario file.
impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_s_key_is_what_a_file_has() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.to_string());
        }
    }

    #[test]
    fn a_counterpart_differs_by_its_label_and_what_it_leaves_out_alone() {
        let whole = Condition { label: "a".into(), overcommit: 2.0, ..Condition::default() };
        let without =
            |without: &[Cause]| Condition { label: "b".into(), without: without.into(), ..whole.clone() };
        let part = without(&[Cause::CpuShare, Cause::MemoryPressure]);
        assert!(part.is_counterpart_of(&whole) && !whole.is_counterpart_of(&part));
        assert!(!without(&[]).is_counterpart_of(&whole) && !part.is_counterpart_of(&part));
        assert!(!Condition { overcommit: 3.0, ..part.clone() }.is_counterpart_of(&whole));
        assert!(part.leaves_out_the_same_as(&without(&[Cause::MemoryPressure, Cause::CpuShare])));
        assert!(!part.leaves_out_the_same_as(&without(&[Cause::CpuShare])));
    }
}
