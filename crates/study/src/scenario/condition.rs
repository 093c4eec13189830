//! One condition: what the host does to the guest.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::setting::{self, Setting};

/// One condition: what the host does to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Condition {
    /// What it is, in a line.
    pub label: String,
    /// CPU quotas of single vCPUs.
    pub quota: Vec<VcpuQuota>,
    /// pCPUs that the vCPUs are pinned to, in turn; empty for all that this process may use.
    pub pcpus: Vec<usize>,
    /// Neighbour VMs, each with as many busy vCPUs as the guest has, on the same pCPUs.
    pub neighbours: u32,
    /// Busy host processes on each pCPU of the guest.
    pub hogs: u32,
    /// Real-time threads of the host that take the guest's pCPUs away in turn. Only in real guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
    /// VMs of one vCPU each that compute for ever, on the guest's pCPUs. Only on the simulator and on real Xen.
    pub spinners: u32,
    /// Whether the guest's memory and scheduling are watched; switched off only to know the observer's cost.
    pub unobserved: bool,
    /// Demand for CPU over pCPUs: neighbour VMs with busy vCPUs are added until the vCPUs of all VMs together are so
    /// many times the pCPUs. 0 for none. Only on the simulator.
    pub overcommit: f64,
    /// Times at which one vCPU is kept from running. On the simulator and in real guests, except for fio.
    pub pauses: Vec<Pause>,
    /// The file of a recording: vCPUs, which have a pCPU each, are kept from running when those of the recording were. Only on the
    /// simulator.
    pub replay: String,
    /// Times at which a neighbour VM is busy. Only on the simulator.
    pub spikes: Vec<Spike>,
    /// What the simulation leaves out, to learn how much of the effect it causes. Only on the simulator.
    pub without: Vec<Cause>,
    /// Keys of the scenario that have another value under this condition: `set = { "guest.vcpus" = 4 }`.
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

    /// The condition once what it sets is set.
    pub(super) fn without_settings(&self) -> Condition {
        Condition { set: IndexMap::new(), ..self.clone() }
    }

    /// Whether this condition is the other one but for causes that it leaves out (and its label). The other one leaves
    /// out none.
    pub fn is_counterpart_of(&self, whole: &Condition) -> bool {
        let with_all = Condition { without: Vec::new(), label: whole.label.clone(), ..self.clone() };
        !self.without.is_empty() && with_all == *whole
    }

    /// Whether two conditions leave out the same causes, in whatever order.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VcpuQuota {
    /// Which vCPU, from 0.
    pub vcpu: usize,
    /// Per cent of one pCPU.
    pub percent: f64,
    /// Period over which it is accounted.
    #[serde(default = "hundred")]
    pub period_ms: u64,
}

fn hundred() -> u64 {
    100
}

/// A real-time thread on each of the guest's pCPUs that takes it away for some time of every period. The first pCPU's bursts
/// begin with a period, the others' are spread over it evenly: with two pCPUs they are in antiphase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// How long each lasts.
    pub for_ms: u64,
    /// The period.
    pub every_ms: u64,
    /// Each begins up to so much earlier or later, uniformly.
    #[serde(default)]
    pub jitter_ms: u64,
    /// Only the pCPU of this vCPU, from 0, is taken away. If absent, that of each.
    #[serde(default)]
    pub vcpu: Option<usize>,
}

/// A time at which the host keeps one vCPU from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Which vCPU, from 0.
    pub vcpu: usize,
    /// When, from the window's start.
    pub at_ms: u64,
    /// For how long.
    pub for_ms: u64,
}

/// A time at which a neighbour VM, idle before and after, is busy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spike {
    /// When, from the window's start.
    pub at_ms: u64,
    /// For how long.
    pub for_ms: u64,
    /// With how many busy vCPUs, spread over the pCPUs.
    pub vcpus: u32,
}

/// What overcommitting does to a guest, apart from each other: the simulator can leave each one out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A vCPU is descheduled within an RCU reader, and holds the grace period.
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

    /// As people read it.
    pub fn label(self) -> &'static str {
        match self {
            Cause::ReaderPreemption => "RCU-reader preemption",
            Cause::LockHolderPreemption => "lock-holder preemption",
            Cause::ContextSwitches => "context switches",
            Cause::CpuShare => "less CPU time",
            Cause::MemoryPressure => "memory pressure",
        }
    }

    /// As a scenario file has it.
    pub fn key(self) -> &'static str {
        match self {
            Cause::ReaderPreemption => "reader-preemption",
            Cause::LockHolderPreemption => "lock-holder-preemption",
            Cause::ContextSwitches => "context-switches",
            Cause::CpuShare => "cpu-share",
            Cause::MemoryPressure => "memory-pressure",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_s_key_is_what_a_file_has() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.key());
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
