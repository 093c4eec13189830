//! A scenario: what is run, under which conditions, and what was published about it. It is data, a TOML file.
//!
//! | module | part of the file |
//! |---|---|
//! | [`guest`] | `[guest]`: the machine under test |
//! | `guest_remedies` | `[guest.slab]` and its like: settings of remedies |
//! | [`host`] | `[host]`: the simulated host, and `[limits]` of a simulation |
//! | [`xen`] | `[host.xen]`: settings of Xen's schedulers |
//! | [`Workload`] | `[workload]` |
//! | [`io`] | `[workload]` of applications that do I/O |
//! | [`fio`] | `[workload]` of fio in a real guest |
//! | [`condition`] | `[conditions.NAME]` |
//! | [`remedy`] | `remedies` of a condition, and their settings in `[host]` |
//! | [`case`] | `[cases.NAME]`: all conditions, with another workload |
//! | [`sweep`] | `[sweeps.NAME]`: one key, several values |
//! | [`space`] | `[space]`: several keys at once |
//! | [`setting`] | values that a condition or a sweep sets |
//! | [`published`] | `[published]` |
//!
//! Bad input is refused before anything starts. A number's range stands beside its field and is checked by `ranges`;
//! limits of counts and lengths stand in [`limits`]; limits that depend on other keys are in `check`. [`keys`] lists
//! all keys with their ranges. `counterparts` adds the conditions that attribute a loss, and `plan` makes the runs.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod case;
mod check;
pub use check::TAPE_END_NS;
pub mod condition;
mod conditions_of;
mod counterparts;
mod explain;
pub mod guest;
mod guest_remedies;
pub mod host;
pub mod keys;
pub mod limits;
pub mod overrides;
mod plan;
pub mod published;
mod ranges;
pub mod remedy;
mod schema;
pub mod setting;
pub mod space;
pub mod sweep;
mod unread;
mod vary;
mod workload;
pub mod xen;

pub use case::Case;
pub use condition::{Bursts, Cause, Condition, Pause, Spike, VcpuQuota};
pub use guest::{Accelerator, Guest, Rcu, Spinlocks};
pub use guest_remedies::{AskFirst, Pressure, Slab};
pub use host::{HostModel, Limits, NoiseTail, SchedulerKind};
pub use plan::PlannedRun;
pub use published::{Published, PublishedOrder, PublishedPair, PublishedRatio};
pub use remedy::{Boost, CoSchedule, Remedy, ShortSlices, SliceGrant, SteadyCpus};
pub use setting::Setting;
pub use space::Space;
pub use sweep::Sweep;
pub use workload::{
    Clones, DeleteFree, Fio, Io, IoSystem, Memory, Phase, Placement, Postmark, Requests, TaskStep,
    TaskThreads, Tasks, Wakeup, Workload, fio, io,
};
pub use xen::{Xen, XenFix, XenVersion};

/// A scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name, as on the command line.
    pub name: String,
    /// One line that says what the scenario shows.
    pub title: String,
    /// The ground on which it runs unless `--on` names another.
    #[serde(default)]
    pub ground: GroundKind,
    /// Repetitions, lengths, seed.
    #[serde(default)]
    pub run: RunPlan,
    /// The machine under test.
    #[serde(default)]
    pub guest: Guest,
    /// The simulated host.
    #[serde(default)]
    pub host: HostModel,
    /// What runs in the guest.
    pub workload: Workload,
    /// How a run is watched.
    #[serde(default)]
    pub observe: Observe,
    /// The conditions to compare, by name; the first one is the baseline.
    pub conditions: IndexMap<String, Condition>,
    /// Variations of the workload, by name. Each is run with all conditions and compared within itself.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub cases: IndexMap<String, Case>,
    /// Keys that are run with several values, by name. Such runs enter no comparison.
    #[serde(default)]
    pub sweeps: IndexMap<String, Sweep>,
    /// Several keys at once, for `reprieve sweep`. `reprieve run` does not run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Space")]
    pub space: Option<Space>,
    /// The resources that a simulated run may take.
    #[serde(default)]
    pub limits: Limits,
    /// What others found in the same experiment.
    #[serde(default)]
    pub published: Published,
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroundKind {
    /// The deterministic simulator; needs nothing of the machine.
    #[default]
    Sim,
    /// Real Linux guests under QEMU, on this host's scheduler.
    Vm,
    /// Real threads of this machine.
    Threads,
    /// Real Xen in deterministic emulation.
    Xen,
}

impl GroundKind {
    /// All of them, the default first.
    pub const ALL: [GroundKind; 4] = [GroundKind::Sim, GroundKind::Vm, GroundKind::Threads, GroundKind::Xen];
}

/// The name in a scenario file.
impl fmt::Display for GroundKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

/// Repetitions and their length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunPlan {
    /// Repetitions of each condition, interleaved in random order.
    #[schemars(range(min = 1, max = 1_000))]
    pub repeat: u32,
    /// Seed of the order of runs, of the resampling, and of the workload.
    pub seed: u64,
    /// How long the workload runs under the condition before the measured window opens, in ms. At most 60000
    /// for `delete-free`.
    #[schemars(range(min = 0, max = 600_000))]
    pub warmup_ms: u64,
    /// Length of the measured window, in ms. A workload of fixed size (Postmark) is measured until it ends.
    /// At most 600000 for `delete-free`.
    #[schemars(range(min = 500, max = 3_600_000))]
    pub window_ms: u64,
    /// A run during which other processes used more of the machine's CPU time than this, in per cent, is done
    /// again.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub foreign_cpu_limit_percent: f64,
    /// Most runs of the whole study that are done again. Later ones are kept, and marked.
    #[schemars(range(min = 0, max = 1_000))]
    pub redo_limit: u32,
    /// Names of the conditions to run, in any order; empty for all.
    pub conditions: Vec<String>,
    /// Names of conditions whose lost throughput is attributed to causes. Each of them, and the baseline, is
    /// run once more for each cause, with that cause left out. Only on the simulator.
    pub attribute: Vec<String>,
}

impl Default for RunPlan {
    fn default() -> Self {
        RunPlan {
            repeat: 3,
            seed: 1,
            warmup_ms: 1_500,
            window_ms: 8_000,
            foreign_cpu_limit_percent: 5.0,
            redo_limit: 4,
            conditions: Vec::new(),
            attribute: Vec::new(),
        }
    }
}

/// How a run is watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Observe {
    /// Samples of the guest's memory per second.
    #[schemars(range(min = 10, max = 20_000))]
    pub sample_hz: u32,
    /// Time between two timed calls of `synchronize_rcu()` in the guest, in ms; 0 for none. The calls are a
    /// load themselves.
    #[schemars(range(min = 0, max = 60_000))]
    pub sync_every_ms: u64,
    /// Identifiers of the metrics in short tables, at most 12; empty for those that matter for the workload.
    /// Metrics with a published value are always shown.
    pub rows: Vec<String>,
}

impl Default for Observe {
    fn default() -> Self {
        Observe { sample_hz: 2_000, sync_every_ms: 100, rows: Vec::new() }
    }
}

/// The reason why a scenario cannot be run, with the key at fault.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct BadScenario {
    /// Dotted key.
    pub key: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

/// What reads or checks a scenario gives its result, or the key at fault.
pub(crate) type Result<T = (), E = BadScenario> = std::result::Result<T, E>;

impl BadScenario {
    /// The problem of that key.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> BadScenario {
        BadScenario { key: key.into(), problem: problem.into() }
    }
}

impl Scenario {
    /// Name of the condition that others are compared with: the first one that is to be run.
    pub fn baseline(&self) -> &str {
        self.chosen().next().map_or("", |(name, _)| name)
    }

    /// Whether the host leaves the guest alone under a condition, in one of the cases if the scenario has some: neither the
    /// condition nor the quotas of the case disturb it.
    pub fn is_undisturbed(&self, condition: &str, case: Option<&str>) -> bool {
        let is_free = case.and_then(|case| self.cases.get(case)).is_none_or(|case| case.quota.is_empty());
        is_free && self.conditions.get(condition).is_some_and(Condition::is_undisturbed)
    }

    /// The first condition that is to be run, is undisturbed in this case, and has no remedy and leaves out no cause.
    pub fn undisturbed(&self, case: Option<&str>) -> Option<&str> {
        let is_plain = |condition: &Condition| condition.remedies.is_empty() && condition.without.is_empty();
        let mut names =
            self.chosen().filter(|(_, condition)| is_plain(condition)).map(|(name, _)| name.as_str());
        names.find(|name| self.is_undisturbed(name, case))
    }

    /// A warning about what is allowed but probably not meant.
    pub fn doubts(&self) -> Option<String> {
        if self.space.is_some() {
            return Some("[space] is ignored here; `reprieve sweep` runs it".into());
        }
        let names: Vec<&str> = self.chosen().map(|(name, _)| name.as_str()).collect();
        let [alone] = names[..] else { return None };
        self.sweeps.is_empty().then(|| {
            format!("only the condition {alone:?} is run: one condition alone is compared with nothing")
        })
    }

    /// The conditions that are to be run, in the file's order.
    pub fn chosen(&self) -> impl Iterator<Item = (&String, &Condition)> {
        let wanted = &self.run.conditions;
        self.conditions.iter().filter(move |(name, _)| wanted.is_empty() || wanted.contains(name))
    }
}
