//! A scenario: what is run, under which conditions, and what was published about it. It is data, a TOML file.
//!
//! Limits of every number stand in [`Scenario::check`], so that bad input is refused before anything starts.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::metric;

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
        Observe {
            sample_hz: 2_000,
            sync_every_ms: 100,
        }
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
    /// Name of the condition that others are compared with.
    pub fn baseline(&self) -> &str {
        self.conditions.keys().next().map_or("", String::as_str)
    }

    /// The conditions that are to be run, in the file's order.
    pub fn chosen(&self) -> impl Iterator<Item = (&String, &Condition)> {
        let wanted = &self.run.conditions;
        self.conditions
            .iter()
            .filter(move |(name, _)| wanted.is_empty() || wanted.contains(name))
    }

    /// Refuses what no ground could run. Limits of the machine at hand (its memory, its pCPUs) are the
    /// ground's to check.
    pub fn check(&self) -> Result<(), BadScenario> {
        let bad = |key: &str, problem: String| {
            Err(BadScenario {
                key: key.into(),
                problem,
            })
        };
        let within = |key: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(BadScenario {
                key: key.into(),
                problem: format!("{value} is not within {low} to {high}"),
            })
        };
        within("run.repeat", self.run.repeat.into(), 1, 1_000)?;
        within("run.warmup_ms", self.run.warmup_ms, 0, 600_000)?;
        within("run.window_ms", self.run.window_ms, 500, 3_600_000)?;
        within("run.redo_limit", self.run.redo_limit.into(), 0, 1_000)?;
        within("guest.vcpus", self.guest.vcpus as u64, 1, 64)?;
        within("guest.memory_mib", self.guest.memory_mib, 128, 1 << 20)?;
        within("guest.boot_limit_ms", self.guest.boot_limit_ms, 1_000, 3_600_000)?;
        within("observe.sample_hz", self.observe.sample_hz.into(), 10, 20_000)?;
        within("observe.sync_every_ms", self.observe.sync_every_ms, 0, 60_000)?;
        if !(0.0..=100.0).contains(&self.run.foreign_cpu_limit_percent) {
            return bad("run.foreign_cpu_limit_percent", "is not within 0 to 100".into());
        }
        if self.conditions.is_empty() {
            return bad(
                "conditions",
                "a scenario needs at least one condition, the baseline".into(),
            );
        }
        for name in &self.run.conditions {
            if !self.conditions.contains_key(name) {
                let known: Vec<&str> = self.conditions.keys().map(String::as_str).collect();
                return bad(
                    "run.conditions",
                    format!("no condition {name:?}; there are {}", known.join(", ")),
                );
            }
        }
        for (name, condition) in &self.conditions {
            self.check_condition(name, condition)?;
        }
        self.check_workload(&within)?;
        self.check_published()
    }

    fn check_condition(&self, name: &str, condition: &Condition) -> Result<(), BadScenario> {
        let bad = |key: &str, problem: String| {
            Err(BadScenario {
                key: format!("conditions.{name}.{key}"),
                problem,
            })
        };
        let mut limited = vec![false; self.guest.vcpus];
        for quota in &condition.quota {
            let Some(seen) = limited.get_mut(quota.vcpu) else {
                let last = self.guest.vcpus - 1;
                return bad(
                    "quota",
                    format!("there is no vCPU {}; the last one is {last}", quota.vcpu),
                );
            };
            if std::mem::replace(seen, true) {
                return bad("quota", format!("vCPU {} has two quotas", quota.vcpu));
            }
            if !(quota.percent >= 1.0 && quota.percent <= 100.0) {
                return bad(
                    "quota",
                    format!("{} % is not within 1 to 100 % of a pCPU", quota.percent),
                );
            }
            if !(1..=1000).contains(&quota.period_ms) {
                return bad(
                    "quota",
                    format!("a period of {} ms is not within 1 to 1000 ms", quota.period_ms),
                );
            }
            if quota.percent / 100.0 * (quota.period_ms as f64) < 1.0 {
                return bad(
                    "quota",
                    "the kernel grants no less than 1 ms a period; lengthen the period".into(),
                );
            }
        }
        if condition.neighbours > 64 {
            return bad("neighbours", format!("{} is more than 64", condition.neighbours));
        }
        if condition.hogs > 64 {
            return bad("hogs", format!("{} is more than 64", condition.hogs));
        }
        Ok(())
    }

    fn check_workload(
        &self,
        within: &dyn Fn(&str, u64, u64, u64) -> Result<(), BadScenario>,
    ) -> Result<(), BadScenario> {
        let memory_mib = self.guest.memory_mib;
        match &self.workload {
            Workload::Memory {
                object_bytes,
                burst,
                pause_us,
                backlog_limit_mib,
            } => {
                within("workload.object_bytes", *object_bytes, 16, 1 << 20)?;
                within("workload.burst", (*burst).into(), 1, 100_000)?;
                within("workload.pause_us", *pause_us, 0, 10_000_000)?;
                within("workload.backlog_limit_mib", *backlog_limit_mib, 0, memory_mib)
            }
            Workload::Clone {
                namespaces,
                stop_below_mib,
            } => {
                let known = all_namespaces();
                if let Some(other) = namespaces.iter().find(|name| !known.contains(name)) {
                    let problem = format!("{other:?} is none of {}", known.join(", "));
                    return Err(BadScenario {
                        key: "workload.namespaces".into(),
                        problem,
                    });
                }
                within("workload.stop_below_mib", *stop_below_mib, 0, memory_mib)
            }
            Workload::Postmark {
                processes,
                files,
                transactions,
                size_min_bytes,
                size_max_bytes,
            } => {
                within("workload.processes", (*processes).into(), 1, 64)?;
                within("workload.files", *files, (*processes).into(), 10_000_000)?;
                within(
                    "workload.transactions",
                    *transactions,
                    (*processes).into(),
                    100_000_000,
                )?;
                within("workload.size_min_bytes", *size_min_bytes, 1, *size_max_bytes)?;
                within(
                    "workload.size_max_bytes",
                    *size_max_bytes,
                    *size_min_bytes,
                    1 << 30,
                )?;
                // A file takes whole pages, and an inode and a dentry of about 1 KiB together.
                let file_bytes = (size_min_bytes + size_max_bytes)
                    .div_ceil(2)
                    .next_multiple_of(4096)
                    + 1024;
                let need_mib = files.saturating_mul(file_bytes) >> 20;
                if need_mib * 4 > memory_mib * 3 {
                    let problem = format!(
                        "the files take about {need_mib} MiB of a guest with {memory_mib} MiB; \
                         lower it or raise guest.memory_mib"
                    );
                    return Err(BadScenario {
                        key: "workload.files".into(),
                        problem,
                    });
                }
                Ok(())
            }
        }
    }

    fn check_published(&self) -> Result<(), BadScenario> {
        let bad = |key: &str, problem: String| {
            Err(BadScenario {
                key: key.into(),
                problem,
            })
        };
        for published in &self.published.ratios {
            if metric::find(&published.metric).is_none() {
                return bad(
                    "published.ratios",
                    format!("there is no metric {:?}", published.metric),
                );
            }
            if !(published.ratio.is_finite() && published.ratio > 0.0) {
                return bad("published.ratios", format!("{} is not a ratio", published.ratio));
            }
        }
        let condition = &self.published.condition;
        if !self.published.ratios.is_empty() && !self.conditions.contains_key(condition) {
            return bad(
                "published.condition",
                format!("there is no condition {condition:?}"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        toml::from_str(
            r#"
            name = "t"
            title = "t"
            [workload]
            kind = "memory"
            [conditions.baseline]
            [conditions.overcommitted]
            quota = [{ vcpu = 1, percent = 20 }]
            "#,
        )
        .unwrap()
    }

    #[test]
    fn the_first_condition_is_the_baseline() {
        let scenario = scenario();
        assert_eq!(scenario.check(), Ok(()));
        assert_eq!(scenario.baseline(), "baseline");
        assert!(scenario.conditions[0].is_undisturbed() && !scenario.conditions[1].is_undisturbed());
    }

    #[test]
    fn refuses_what_cannot_run_and_names_the_key() {
        let key = |change: &dyn Fn(&mut Scenario)| {
            let mut scenario = scenario();
            change(&mut scenario);
            scenario.check().unwrap_err().key
        };
        assert_eq!(key(&|s| s.guest.vcpus = 0), "guest.vcpus");
        assert_eq!(key(&|s| s.run.repeat = 0), "run.repeat");
        assert_eq!(
            key(&|s| s.conditions[1].quota[0].vcpu = 2),
            "conditions.overcommitted.quota"
        );
        assert_eq!(
            key(&|s| s.conditions[1].quota[0].percent = 120.0),
            "conditions.overcommitted.quota"
        );
        assert_eq!(
            key(&|s| s.conditions[1].quota[0].percent = f64::NAN),
            "conditions.overcommitted.quota"
        );
        assert_eq!(
            key(&|s| s.conditions[1].quota[0].period_ms = 2),
            "conditions.overcommitted.quota"
        );
        assert_eq!(key(&|s| s.run.conditions = vec!["x".into()]), "run.conditions");
        assert_eq!(key(&|s| s.conditions.clear()), "conditions");
        let postmark = Workload::Postmark {
            processes: 2,
            files: 128_000,
            transactions: 10,
            size_min_bytes: 500,
            size_max_bytes: 4000,
        };
        assert_eq!(key(&|s| s.workload = postmark.clone()), "workload.files");
    }
}
