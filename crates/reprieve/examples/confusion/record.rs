//! The record: every run with what was injected, what explain said, and what the host says happened.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::causes::Cause;
use crate::draw::Drawn;

/// The version of the record.
pub const VERSION: u32 = 1;

/// All runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub confusion_version: u32,
    /// How it was made.
    pub command: String,
    /// What all values follow from.
    pub seed: u64,
    /// For how long explain looked, s.
    pub watch_s: u64,
    /// What executed the guests, and why that.
    pub accelerator: String,
    /// The host's kernel.
    pub host_kernel: String,
    /// pCPUs that could be used.
    pub host_pcpus: usize,
    /// When a run is rejected; fixed beforehand.
    pub rule: String,
    /// Runs that were planned.
    pub planned: usize,
    /// In the order of time.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Release of the guest's kernel.
    pub kernel: String,
    /// Its vCPUs.
    pub vcpus: usize,
    /// What was injected.
    pub cause: Cause,
    /// How strong, from 0 on.
    pub strength: usize,
    /// The repetition, which with the record's seed gives all values.
    pub repetition: usize,
    /// Whether the background was to be busy.
    pub is_busy: bool,
    /// The values.
    pub drawn: Drawn,
    /// What explain said; none if the run failed.
    pub verdict: Option<Verdict>,
    /// From the injection to the verdict, s.
    pub to_verdict_s: Option<f64>,
    /// What others used of the host meanwhile, in CPUs.
    pub foreign_cpus: f64,
    /// What the host says of the vCPUs meanwhile.
    pub truth: Truth,
    /// Why it does not count, if it does not.
    pub rejected: Option<String>,
}

/// What is known without explain.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Truth {
    /// How long the accounts were open, ns.
    pub window_ns: u64,
    /// Time on a pCPU of each vCPU, ns.
    pub run_ns: Vec<u64>,
    /// Time each waited for one, ns; throttling included.
    pub delay_ns: Vec<u64>,
    /// Throttling of each quota's group, ns.
    pub throttled_ns: Vec<u64>,
    /// How much of the window the injection took from what it aims at, in per cent; none if that is not known.
    pub effect_percent: Option<f64>,
    /// Slices of the vCPU with neighbours.
    pub slices: Option<Slices>,
    /// Grace periods in the guest's memory, if they are compared.
    #[serde(default)]
    pub graces: Option<Graces>,
    /// The guest's counters over the look, ns: `cpu_wait`, `memory_wait`, `kthread_wait`, `held`.
    pub guest_ns: BTreeMap<String, u64>,
}

/// Grace periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graces {
    /// How many.
    pub count: usize,
    /// Their median, ns.
    pub p50_ns: u64,
    /// The longest, ns.
    pub longest_ns: u64,
}

/// Times on and off of a vCPU, by the host's switch records.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slices {
    /// Stretches since an absence of 1 ms or more that ended by a preemption of 1 ms or more.
    pub count: usize,
    /// Their median, ns.
    pub on_p50_ns: u64,
    /// The median of these preemptions, ns.
    pub off_p50_ns: u64,
    /// Records that were lost.
    pub lost: u64,
}

/// Explain's verdict in short, and the figures that it rests on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Names of all causes, the first one first.
    pub causes: Vec<String>,
    /// How sure the first one is.
    pub confidence: Option<String>,
    /// Thousandths lost, of each.
    pub lost_permille: Vec<u64>,
    /// Period and time on in it, ns, and whether it may be a task of the host instead.
    pub quota: Option<Value>,
    /// vCPUs with a quota, or the one with a neighbour.
    pub on_vcpus: Option<Value>,
    /// Turns with others.
    pub turns: Option<Value>,
    /// Of each vCPU: times off, kept by the guest, idle.
    pub seen: Vec<Value>,
    /// Waits for grace periods (`membarrier`): how many, their median and their longest, ns.
    pub grace_periods_ns: (usize, u64, u64),
    /// The kernel's own grace periods, by tier T2.
    #[serde(default)]
    pub exact_graces: Option<Graces>,
    /// Step of the clock, ns.
    pub clock_step_ns: i64,
}

impl Verdict {
    /// From what `explain --json` printed. Nothing of a guest is trusted: what is not there stays empty.
    pub fn of(said: &Value) -> Verdict {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let findings = list(&said["findings"]);
        let some =
            |key: &str| findings.iter().map(|finding| finding[key].clone()).find(|value| !value.is_null());
        let numbers = |key: &str| list(&said[key]).iter().filter_map(Value::as_u64).collect::<Vec<_>>();
        let periods = numbers("membarrier_ns");
        Verdict {
            causes: findings
                .iter()
                .filter_map(|finding| Some(finding["cause"].as_str()?.to_string()))
                .collect(),
            confidence: findings.first().and_then(|first| Some(first["confidence"].as_str()?.to_string())),
            lost_permille: findings.iter().filter_map(|finding| finding["lost_permille"].as_u64()).collect(),
            quota: some("quota"),
            on_vcpus: some("vcpus").or_else(|| some("vcpu")),
            turns: some("turns"),
            seen: list(&said["vcpus"]),
            grace_periods_ns: (
                periods.len(),
                periods.get(periods.len() / 2).copied().unwrap_or(0),
                periods.last().copied().unwrap_or(0),
            ),
            exact_graces: Graces::of(&numbers("grace_periods_ns")),
            clock_step_ns: said["clock_step_ns"].as_i64().unwrap_or(0),
        }
    }

    /// Waits for grace periods; none if there were none.
    pub fn waits(&self) -> Option<Graces> {
        let (count, p50_ns, longest_ns) = self.grace_periods_ns;
        (count > 0).then_some(Graces { count, p50_ns, longest_ns })
    }
}

impl Graces {
    /// Of these durations, ascending; none if there are none.
    fn of(durations_ns: &[u64]) -> Option<Graces> {
        let (p50_ns, longest_ns) = (*durations_ns.get(durations_ns.len() / 2)?, *durations_ns.last()?);
        Some(Graces { count: durations_ns.len(), p50_ns, longest_ns })
    }
}

impl Record {
    /// Reads one.
    ///
    /// # Errors
    /// It cannot be read, or is not a record of this version.
    pub fn read(path: &Path) -> Result<Record, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let record: Record =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if record.confusion_version != VERSION {
            let version = record.confusion_version;
            return Err(format!(
                "{}: a record of version {version}, and this reads {VERSION}",
                path.display()
            ));
        }
        Ok(record)
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(said)?;
        let text = serde_json::to_string(self).expect("a record is plain data");
        // A run a line: a difference between two records can be read.
        let text = text.replace("{\"kernel\":", "\n{\"kernel\":");
        file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(said)?;
        file.persist(path).map_err(|error| said(error.error))?;
        Ok(())
    }
}
