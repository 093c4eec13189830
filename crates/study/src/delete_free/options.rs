//! The options that a run gives to a program: the same for every scheme. A program repeats them in its answer, so
//! that a program of another version is noticed.

use serde::Deserialize;

use crate::scenario::{Scenario, Workload};

/// The options of one run, in the order of the command line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Options {
    /// Elements of the table.
    pub entries: u64,
    /// Threads that look up.
    pub readers: u64,
    /// CPUs on which they may run, ascending.
    pub reader_cpus: Vec<usize>,
    /// CPUs on which the writer, and a thread of the scheme's own, may run, ascending.
    pub writer_cpus: Vec<usize>,
    /// Elements that the writer deletes per second.
    pub deletes_per_s: u64,
    /// Time before the window, in ms.
    pub warmup_ms: u64,
    /// Length of the window, in ms.
    pub duration_ms: u64,
    /// Time that a reader computes between two look-ups, in ns.
    pub think_ns: u64,
    /// Time that a reader computes within a section, in ns.
    pub section_ns: u64,
    /// Time that one reader stays in a section, once, in ms.
    pub stall_ms: u64,
    /// Look-ups between two quiescent states.
    pub quiescent_every: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Options {
    /// The options of one run of a scenario, with the scheme's name; `None` for another workload. Each repetition has
    /// a seed of its own, which all of its runs share.
    pub fn of(scenario: &Scenario, repetition: u32) -> Option<(&str, Options)> {
        let Workload::DeleteFree(asked) = &scenario.workload else { return None };
        let options = Options {
            entries: asked.entries,
            readers: asked.readers.into(),
            reader_cpus: ascending(&asked.reader_cpus),
            writer_cpus: ascending(&asked.writer_cpus),
            deletes_per_s: asked.deletes_per_s,
            warmup_ms: scenario.run.warmup_ms,
            duration_ms: scenario.run.window_ms,
            think_ns: asked.think_ns,
            section_ns: asked.section_ns,
            stall_ms: asked.stall_ms,
            quiescent_every: asked.quiescent_every.into(),
            seed: scenario.run.seed.wrapping_add(repetition.into()),
        };
        Some((&asked.scheme, options))
    }

    /// As a program's command line.
    pub fn arguments(&self) -> Vec<String> {
        let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        [
            ("entries", self.entries.to_string()),
            ("readers", self.readers.to_string()),
            ("reader-cpus", list(&self.reader_cpus)),
            ("writer-cpus", list(&self.writer_cpus)),
            ("deletes-per-s", self.deletes_per_s.to_string()),
            ("warmup-ms", self.warmup_ms.to_string()),
            ("duration-ms", self.duration_ms.to_string()),
            ("think-ns", self.think_ns.to_string()),
            ("section-ns", self.section_ns.to_string()),
            ("stall-ms", self.stall_ms.to_string()),
            ("quiescent-every", self.quiescent_every.to_string()),
            ("seed", self.seed.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [format!("--{name}"), value])
        .collect()
    }

    /// Warm-up, window and stall.
    pub fn length_ms(&self) -> u64 {
        self.warmup_ms + self.duration_ms + self.stall_ms
    }

    /// All CPUs of the run, ascending.
    pub fn cpus(&self) -> Vec<usize> {
        ascending(&[&self.reader_cpus[..], &self.writer_cpus].concat())
    }
}

fn ascending(cpus: &[usize]) -> Vec<usize> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}
