//! One run's result. The same type from every ground.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observe::distribution::Distribution;
use crate::observe::stalls::Stall;
use crate::observe::tape::Tape;
use crate::observe::timeline::{Timeline, Trace};

/// The result of one run of one condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Name of the condition.
    pub condition: String,
    /// Which repetition of it, from 0.
    pub repetition: u32,
    /// Whether it counts.
    pub standing: Standing,
    /// The value of a sweep that it was run with, if it is part of one. Such a run enters no comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepPoint>,
    /// The case, if the scenario has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// Where and how it was measured.
    pub provenance: Provenance,
    /// Scalars by [`crate::observe::metric`] identifier. What could not be measured is absent.
    pub metrics: BTreeMap<String, f64>,
    /// Distributions of durations: [`GP_DURATIONS`], [`SYNC_LATENCIES`], [`LATENCIES`], [`SAMPLE_GAPS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distributions: BTreeMap<String, Distribution>,
    /// Values over the window: [`FOOTPRINT`], [`UNUSABLE`], [`BACKLOG`], [`GP_OVER_TIME`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timelines: BTreeMap<String, Timeline>,
    /// For each vCPU, how many grace periods it ended as their last holdout. Empty where that was not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holdouts: Vec<u64>,
    /// A few stalls, event by event; empty where events were not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
    /// Event by event, for a trace viewer; not part of a record.
    #[serde(skip)]
    pub trace: Option<Trace>,
    /// When vCPUs were kept from running, to be replayed; not part of a record.
    #[serde(skip)]
    pub tape: Option<Tape>,
    /// The recording that a simulated run replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
}

/// The recording that a simulated run replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// What had been recorded, where, and how.
    pub source: String,
    /// What the recorded run itself showed.
    pub metrics: BTreeMap<String, f64>,
}

/// Where in a sweep a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Name of the sweep in the scenario.
    pub sweep: String,
    /// Value of its key.
    pub value: f64,
}

impl Observation {
    /// An accepted run outside of any sweep, with no results yet.
    pub fn new(condition: &str, repetition: u32, provenance: Provenance) -> Observation {
        Observation { condition: condition.into(), repetition, provenance, ..Observation::default() }
    }

    /// The value of that metric, if it was measured.
    pub fn value(&self, metric: &str) -> Option<f64> {
        self.metrics.get(metric).copied()
    }

    /// For progress: the condition, and the value of the sweep.
    pub fn title(&self) -> String {
        title(&self.condition, self.case.as_deref(), self.sweep.as_ref())
    }

    /// Whether it is a run of that condition that counts, and not part of a sweep.
    pub fn is_of(&self, condition: &str) -> bool {
        self.is_of_case(None, condition)
    }

    /// The same for one case.
    pub fn is_of_case(&self, case: Option<&str>, condition: &str) -> bool {
        let same = self.condition == condition && self.case.as_deref() == case;
        same && self.sweep.is_none() && self.standing.counts()
    }
}

/// Name of a run: its case, its condition, and the value of its sweep.
pub(crate) fn title(condition: &str, case: Option<&str>, sweep: Option<&SweepPoint>) -> String {
    let condition = match case {
        Some(case) => format!("{case}, {condition}"),
        None => condition.into(),
    };
    match sweep {
        Some(SweepPoint { sweep, value }) => format!("{condition} with {sweep} {value}"),
        None => condition,
    }
}

/// Key of the distribution of grace-period durations.
pub const GP_DURATIONS: &str = "gp_duration_ns";
/// Key of the distribution of `synchronize_rcu()` latencies.
pub const SYNC_LATENCIES: &str = "sync_latency_ns";
/// Key of the distribution of latencies: wake-ups or round trips.
pub const LATENCIES: &str = "latency_ns";
/// Key of the distribution of how long a vCPU was preempted or throttled at a time, over all vCPUs.
pub const VCPU_OFF: &str = "vcpu_off_ns";
/// Key of the distribution of how long a vCPU ran undisturbed between two such times.
pub const VCPU_UNDISTURBED: &str = "vcpu_undisturbed_ns";
/// Key of the distribution of the time between two samples.
pub const SAMPLE_GAPS: &str = "sample_gap_ns";
/// Key of the timeline of the memory footprint.
pub const FOOTPRINT: &str = "footprint_bytes";
/// Key of the timeline of the unusable free space index.
pub const UNUSABLE: &str = "unusable_index";
/// Key of the timeline of the callback backlog.
pub const BACKLOG: &str = "backlog_count";
/// Key of the timeline of grace-period durations, each at its end.
pub const GP_OVER_TIME: &str = "gp_duration_ns";

/// Key of the timeline of bytes read and written per second.
pub const IO_OVER_TIME: &str = "io_bytes_per_s";

/// Whether a run enters the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Foreign CPU time was below the limit.
    #[default]
    Accepted,
    /// Foreign CPU time was above the limit, and the run was done again: it does not enter the comparison.
    Redone,
    /// Foreign CPU time was above the limit, but the study's redo limit was reached: the run enters the comparison,
    /// marked.
    Kept,
}

impl Standing {
    /// Whether the run enters the comparison.
    pub fn counts(self) -> bool {
        self != Standing::Redone
    }
}

/// Where and how a run was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The ground, with its version: `vm, QEMU 7.2.22`.
    pub ground: String,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// Why that accelerator was used.
    pub accelerator_reason: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// Release of the host's kernel.
    pub host_kernel: String,
    /// pCPUs of the host that this process may use.
    pub host_pcpus: usize,
    /// Seed of the study.
    pub seed: u64,
    /// Length of the measured window.
    pub window_ns: u64,
    /// CPU time of other processes, per cent of the machine.
    pub foreign_cpu_percent: f64,
    /// Where scheduling intervals came from.
    pub scheduling_source: String,
    /// CPU time that each vCPU's thread got and wanted.
    pub vcpus: Vec<VcpuTime>,
    /// Samples taken of the guest's memory.
    pub samples: u64,
    /// Grace periods that began and ended between two samples: counted, but without a duration.
    pub missed_gps: u64,
    /// What the guest's kernel shows of its settings, a line each: `preempt is voluntary`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// Notes on what could not be done or measured, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Events that were simulated; 0 on real machines.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events: u64,
    /// Hash of all results of a simulated run, to check that a repeated run gives the same; empty on real machines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result_hash: String,
    /// Hash of the source of the policy that decided in a simulated run; empty if none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Provenance {
    /// Whether the run was simulated: its ground begins with the simulator's name.
    pub fn is_simulated(&self) -> bool {
        self.ground.split([',', ' ']).next() == Some("sim")
    }
}

/// CPU time of one vCPU's thread in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuTime {
    /// Time on a pCPU.
    pub run_ns: u64,
    /// Time during which it was runnable, but descheduled by the host.
    pub delay_ns: u64,
}

impl VcpuTime {
    /// Time it wanted over time it got: 1 when nothing was taken away, `None` when it never ran.
    pub fn overcommit(self) -> Option<f64> {
        (self.run_ns > 0).then(|| (self.run_ns as f64 + self.delay_ns as f64) / self.run_ns as f64)
    }
}
