//! A scenario: what is run, under which conditions, and what was published about it. It is data, a TOML file.
//!
//! Limits of every number stand in `check`, so that bad input is refused before anything starts.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

mod check;

/// A scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name, as on the command line.
    pub name: String,
    /// One line: what it shows.
    pub title: String,
    /// Ground on which it runs unless told otherwise.
    #[serde(default)]
    pub ground: Ground,
    /// Repetitions, lengths, seed.
    #[serde(default)]
    pub run: RunPlan,
    /// The machine under test.
    #[serde(default)]
    pub guest: Guest,
    /// What runs in it.
    pub workload: Workload,
    /// How it is watched.
    #[serde(default)]
    pub observe: Observe,
    /// The conditions to compare, by name; the first one is the baseline.
    pub conditions: IndexMap<String, Condition>,
    /// What others found.
    #[serde(default)]
    pub published: Published,
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    /// Real Linux guests under QEMU, on this host's scheduler.
    #[default]
    Vm,
}

impl fmt::Display for Ground {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ground::Vm => out.write_str("vm"),
        }
    }
}

/// Repetitions and their length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunPlan {
    /// Repetitions of each condition, interleaved in random order.
    pub repeat: u32,
    /// Seed of the order, the resampling and the workload.
    pub seed: u64,
    /// The workload runs this long under the condition before the window opens.
    pub warmup_ms: u64,
    /// Length of the measured window. A workload of fixed size (Postmark) is measured until it ends.
    pub window_ms: u64,
    /// A run during which other processes used more of the machine's CPU than this is done again.
    pub foreign_cpu_limit_percent: f64,
    /// At most so many runs of the whole study are done again; later ones are kept, and marked.
    pub redo_limit: u32,
    /// Names of the conditions to run; empty for all.
    pub conditions: Vec<String>,
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
        }
    }
}

/// The machine under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Guest {
    /// Virtual CPUs.
    pub vcpus: usize,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// A kernel image with BTF; empty for the distribution's current one.
    pub kernel: String,
    /// Words appended to the kernel's command line.
    pub append: String,
    /// How the guest is executed.
    pub accelerator: Accelerator,
    /// A guest that is not ready by then has failed.
    pub boot_limit_ms: u64,
}

impl Default for Guest {
    fn default() -> Self {
        Guest {
            vcpus: 2,
            memory_mib: 512,
            kernel: String::new(),
            append: String::new(),
            accelerator: Accelerator::Auto,
            boot_limit_ms: 60_000,
        }
    }
}

/// How the guest is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// KVM if a probe guest reaches user space under it within seconds, else TCG.
    Auto,
    /// Hardware virtualisation.
    Kvm,
    /// Emulation, one host thread a vCPU.
    Tcg,
}

/// What runs in the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Kernel threads, one a vCPU, that allocate objects and free them through `call_rcu()`.
    Memory {
        /// Size of an object.
        #[serde(default = "kib")]
        object_bytes: u64,
        /// Pairs of allocation and `call_rcu()` between two voluntary context switches.
        #[serde(default = "ten")]
        burst: u32,
        /// Pause after each burst; 0 for none. Sets the rate.
        #[serde(default)]
        pause_us: u64,
        /// The workers pause above this much unreclaimed memory, in MiB; 0 for half of the guest's.
        #[serde(default)]
        backlog_limit_mib: u64,
    },
    /// Processes, pinned one a vCPU, that `clone()` into new namespaces in a loop.
    Clone {
        /// The namespaces: of `net`, `ipc`, `uts`, `pid`, `mnt`.
        #[serde(default = "all_namespaces")]
        namespaces: Vec<String>,
        /// The workers pause while the guest has less memory available than this, in MiB.
        #[serde(default = "sixty_four")]
        stop_below_mib: u64,
    },
    /// Debian's `postmark`, several processes, on tmpfs.
    Postmark {
        /// Processes.
        #[serde(default = "two")]
        processes: u32,
        /// Files at the start, over all processes.
        files: u64,
        /// Transactions, over all processes.
        transactions: u64,
        /// Smallest file.
        #[serde(default = "five_hundred")]
        size_min_bytes: u64,
        /// Largest file.
        #[serde(default = "four_thousand")]
        size_max_bytes: u64,
    },
}

fn kib() -> u64 {
    1024
}
fn ten() -> u32 {
    10
}
fn two() -> u32 {
    2
}
fn sixty_four() -> u64 {
    64
}
fn five_hundred() -> u64 {
    500
}
fn four_thousand() -> u64 {
    4_000
}
fn all_namespaces() -> Vec<String> {
    ["net", "ipc", "uts", "pid", "mnt"].map(String::from).to_vec()
}

impl Workload {
    /// What one operation is, for the throughput's caption.
    pub fn operation(&self) -> &'static str {
        match self {
            Workload::Memory { .. } => "allocation and call_rcu() pairs",
            Workload::Clone { .. } => "clones",
            Workload::Postmark { .. } => "transactions",
        }
    }
}

/// How a run is watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Observe {
    /// Samples of the guest's memory per second.
    pub sample_hz: u32,
    /// One `synchronize_rcu()` is timed in the guest so often; 0 for never. It is itself a load.
    pub sync_every_ms: u64,
}

impl Default for Observe {
    fn default() -> Self {
        Observe { sample_hz: 2_000, sync_every_ms: 100 }
    }
}

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
    /// Whether the guest's memory and scheduling are watched; switched off only to know the observer's cost.
    pub unobserved: bool,
}

impl Condition {
    /// Whether the host disturbs the guest at all.
    pub fn is_undisturbed(&self) -> bool {
        self.quota.is_empty() && self.pcpus.is_empty() && self.neighbours == 0 && self.hogs == 0
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

/// What others found in the same experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Published {
    /// Where: authors, title, venue, pages.
    pub source: String,
    /// Under which condition of this scenario it should show.
    pub condition: String,
    /// Ratios of that condition to the baseline.
    pub ratios: Vec<PublishedRatio>,
    /// Other statements, as text.
    pub statements: Vec<String>,
}

/// One published ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRatio {
    /// Which metric.
    pub metric: String,
    /// Overcommitted over baseline.
    pub ratio: f64,
    /// As it was printed.
    pub printed: String,
}

/// A scenario that cannot be run, with the key at fault.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct BadScenario {
    /// Dotted key.
    pub key: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl Scenario {
    /// Name of the condition that others are compared with: the first one that is to be run.
    pub fn baseline(&self) -> &str {
        self.chosen().next().map_or("", |(name, _)| name)
    }

    /// The conditions that are to be run, in the file's order.
    pub fn chosen(&self) -> impl Iterator<Item = (&String, &Condition)> {
        let wanted = &self.run.conditions;
        self.conditions.iter().filter(move |(name, _)| wanted.is_empty() || wanted.contains(name))
    }
}
