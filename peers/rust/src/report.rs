//! One line of JSON: the same keys from every binary of both languages.

use crate::ledger::{Ledger, Role};
use crate::options::Options;
use crate::reader;
use crate::table::Node;
use crate::writer::Window;
use serde::Serialize;

/// Who a binary is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Identity {
    /// The scheme: the binary's name.
    pub scheme: &'static str,
    /// The library it measures.
    pub library: &'static str,
    /// The library's version.
    pub version: &'static str,
    /// What readers do: `none`, `quiescent` (they report), `lock` (they enter and leave), `hazard` (they publish each
    /// pointer), `restartable` (they are restarted), `signal` (a signal restarts them); of other benchmarks `lookup` and
    /// `value`.
    pub kind: &'static str,
}

impl Identity {
    /// A binary of the benchmark of look-ups.
    pub const fn lookup(scheme: &'static str, library: &'static str, version: &'static str) -> Self {
        Self { scheme, library, version, kind: "lookup" }
    }

    /// A binary of the benchmark of values.
    pub const fn value(scheme: &'static str, library: &'static str, version: &'static str) -> Self {
        Self { scheme, library, version, kind: "value" }
    }
}

#[derive(Serialize)]
struct Deletes {
    asked_per_s: u64,
    delivered_per_s: f64,
    delivered: u64,
    freed: u64,
    pending_at_end: u64,
}

#[derive(Serialize)]
struct Delay {
    count: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
}

#[derive(Serialize)]
struct Writer {
    cpu_ns_per_delete: f64,
    background_cpu_ns_per_delete: f64,
    retire_mean_ns: f64,
    retire_p999_ns: u64,
    retire_max_ns: u64,
    lateness_mean_ns: f64,
    lateness_max_ns: u64,
}

#[derive(Serialize)]
struct Readers {
    lookups: u64,
    cpu_ns_per_lookup: f64,
    misses: u64,
}

#[derive(Serialize)]
struct Peak {
    objects: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct FreedBy {
    writer: u64,
    readers: u64,
    background: u64,
}

/// The calls of membarrier of a run, and what they led to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fences {
    /// Calls.
    pub membarriers: u64,
    /// Median of their durations, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// How often readers were moved to fences of their own, or back.
    pub switches: u64,
}

/// What a run measured.
#[derive(Serialize)]
pub struct Report<'a> {
    #[serde(flatten)]
    identity: Identity,
    options: &'a Options,
    deletes: Deletes,
    delay_ns: Delay,
    errors: u64,
    writer: Writer,
    readers: Readers,
    unreclaimed_peak: Peak,
    freed_by: FreedBy,
    #[serde(skip_serializing_if = "Option::is_none")]
    fences: Option<Fences>,
    load_average: Vec<f64>,
    notes: Vec<String>,
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The three load averages of the machine; empty where they cannot be read.
pub fn load_average() -> Vec<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).filter_map(|word| word.parse().ok()).collect()
}

impl<'a> Report<'a> {
    /// Puts together what was measured, once the readers have ended.
    pub fn new(
        identity: Identity,
        options: &'a Options,
        window: &Window,
        readers: reader::Counts,
        ledger: &Ledger,
        fences: Option<Fences>,
        notes: Vec<String>,
    ) -> Self {
        let (counts, delay) = (&window.counts, ledger.delay());
        Self {
            identity,
            options,
            deletes: Deletes {
                asked_per_s: options.deletes_per_s,
                delivered_per_s: counts.deletes as f64 / (window.window_ns as f64 / 1e9),
                delivered: counts.deletes,
                freed: delay.count(),
                pending_at_end: window.pending,
            },
            delay_ns: Delay {
                count: delay.count(),
                mean: delay.mean(),
                p50: delay.quantile(0.5),
                p90: delay.quantile(0.9),
                p99: delay.quantile(0.99),
                max: delay.max(),
            },
            errors: readers.errors,
            writer: Writer {
                cpu_ns_per_delete: ratio(window.cpu_ns, counts.deletes),
                background_cpu_ns_per_delete: ratio(window.background_cpu_ns, counts.deletes),
                retire_mean_ns: counts.retire.mean(),
                retire_p999_ns: counts.retire.quantile(0.999),
                retire_max_ns: counts.retire.max(),
                lateness_mean_ns: ratio(counts.late_sum_ns, counts.deletes),
                lateness_max_ns: counts.late_max_ns,
            },
            readers: Readers {
                lookups: readers.reads,
                cpu_ns_per_lookup: ratio(readers.cpu_ns, readers.reads),
                misses: readers.misses,
            },
            unreclaimed_peak: Peak { objects: counts.peak, bytes: counts.peak * size_of::<Node>() as u64 },
            freed_by: FreedBy {
                writer: ledger.freed_by(Role::Writer),
                readers: ledger.freed_by(Role::Reader),
                background: ledger.freed_by(Role::Background),
            },
            fences,
            load_average: load_average(),
            notes,
        }
    }

    /// Look-ups that met a node that did not hold its value.
    pub fn errors(&self) -> u64 {
        self.errors
    }
}
