//! Turns the line that a program prints into an observation. The answer is checked against the question.

use serde::Deserialize;

use super::options::Options;
use crate::observe::derive::put;
use crate::observe::metric;
use crate::observe::observation::{Observation, Provenance};
use crate::scenario::PlannedRun;
use crate::shown;
use crate::units::{MILLISECOND_NS, SECOND_NS};

/// Most notes that are taken from a program, and the longest one, in characters.
const NOTES: usize = 16;
const NOTE_CHARACTERS: usize = 400;

/// The identity that a program gives.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Identity {
    /// Its scheme.
    pub scheme: String,
    /// The library that it measures.
    pub library: String,
    /// That library's version.
    pub version: String,
    /// The protocol of its readers: `none`, `quiescent`, `lock`, ...
    pub kind: String,
}

/// Reads a line of a program's, from JSON.
///
/// # Errors
/// The error, as the end of a sentence about the program.
pub fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("printed nothing".into());
    }
    serde_json::from_str(text).map_err(|error| format!("printed no answer ({error})"))
}

/// The line that a program prints. Other keys are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The program's identity.
    #[serde(flatten)]
    pub identity: Identity,
    /// The question as the program understood it.
    pub options: Options,
    deletes: Deletes,
    delay_ns: Delay,
    /// How often a reader met an element that it must not meet.
    pub errors: u64,
    writer: Writer,
    readers: Readers,
    unreclaimed_peak: Peak,
    fences: Option<Fences>,
    #[serde(default)]
    notes: Vec<String>,
}

/// Delays of elements that were removed within the window.
#[derive(Clone, Debug, Deserialize)]
struct Deletes {
    delivered_per_s: f64,
    delivered: u64,
    freed: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Delay {
    count: u64,
    mean: f64,
    p50: u64,
    p99: u64,
    max: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Writer {
    cpu_ns_per_delete: f64,
    lateness_mean_ns: Option<f64>,
    lateness_max_ns: Option<u64>,
    retire_p999_ns: Option<u64>,
    retire_max_ns: Option<u64>,
    background_cpu_ns_per_delete: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Readers {
    lookups: u64,
    cpu_ns_per_lookup: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Peak {
    objects: u64,
    bytes: u64,
}

/// Counts over the whole run, warm-up included.
#[derive(Clone, Debug, Deserialize)]
struct Fences {
    membarriers: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    switches: u64,
}

impl Answer {
    /// Reads what a program printed.
    ///
    /// # Errors
    /// The error, as the end of a sentence about the program: the text is no answer, or answers another question, or
    /// the program's readers met elements that they must not meet.
    pub fn read(text: &str, scheme: &str, asked: &Options) -> Result<Answer, String> {
        let answer: Answer = parse(text)?;
        if answer.identity.scheme != scheme {
            return Err(format!("says that its scheme is {:?}", answer.identity.scheme));
        }
        if answer.options != *asked {
            return Err(format!("was asked for {asked:?} and ran {:?}", answer.options));
        }
        if answer.errors > 0 {
            return Err(format!("its readers met freed memory {} times", answer.errors));
        }
        Ok(answer)
    }

    /// The observation of that run. `provenance` has what the ground knows; the program's notes are added to it.
    pub fn observe(self, planned: &PlannedRun, mut provenance: Provenance) -> Observation {
        let Identity { library, version, .. } = &self.identity;
        if library != "none" {
            provenance.notes.push(plain(&format!("{library} {version}")));
        }
        if let Some(waiting) =
            self.deletes.delivered.checked_sub(self.delay_ns.count).filter(|left| *left > 0)
        {
            provenance.notes.push(match self.deletes.freed {
                0 => "nothing was freed within the run".into(),
                _ => format!("{waiting} deletes of a window were not freed while readers ran"),
            });
        }
        provenance.notes.extend(self.notes.iter().take(NOTES).map(|note| plain(note)));
        // A ground that measures the window itself has set it already.
        if provenance.window_ns == 0 {
            provenance.window_ns = self.options.duration_ms * MILLISECOND_NS;
        }
        let mut out = Observation::new(&planned.condition, planned.repetition, provenance);
        out.case = planned.case.clone();
        out.sweep = planned.sweep.clone();
        self.put_metrics(&mut out);
        out
    }

    fn put_metrics(&self, out: &mut Observation) {
        let (delay, writer, readers) = (&self.delay_ns, &self.writer, &self.readers);
        if delay.count > 0 {
            put(out, metric::DELAY_P50, delay.p50 as f64);
            put(out, metric::DELAY_MEAN, delay.mean);
            put(out, metric::DELAY_P99, delay.p99 as f64);
            put(out, metric::DELAY_MAX, delay.max as f64);
        }
        put(out, metric::DELIVERED, self.deletes.delivered_per_s);
        if self.deletes.delivered > 0 {
            put(out, metric::WRITER_COST, writer.cpu_ns_per_delete);
        }
        // Most schemes have no thread of their own.
        if writer.background_cpu_ns_per_delete > 0.0 {
            put(out, metric::BACKGROUND_COST, writer.background_cpu_ns_per_delete);
        }
        if readers.lookups > 0 {
            put(out, metric::LOOKUP_COST, readers.cpu_ns_per_lookup);
        }
        let window_ns = (self.options.duration_ms * MILLISECOND_NS).max(1);
        put(out, metric::THROUGHPUT, readers.lookups as f64 * SECOND_NS as f64 / window_ns as f64);
        if let (Some(mean), Some(max)) = (writer.lateness_mean_ns, writer.lateness_max_ns) {
            put(out, metric::WRITER_LATE, mean);
            put(out, metric::WRITER_LATE_MAX, max as f64);
        }
        if let (Some(p999), Some(max)) = (writer.retire_p999_ns, writer.retire_max_ns) {
            put(out, metric::RETIRE_P999, p999 as f64);
            put(out, metric::RETIRE_MAX, max as f64);
        }
        if let Some(fences) = &self.fences {
            put(out, metric::MEMBARRIERS, fences.membarriers as f64);
            put(out, metric::SWITCHES, fences.switches as f64);
            if fences.membarriers > 0 {
                put(out, metric::MEMBARRIER_P50, fences.p50_ns as f64);
                put(out, metric::MEMBARRIER_P99, fences.p99_ns as f64);
                put(out, metric::MEMBARRIER_MAX, fences.max_ns as f64);
            }
        }
        put(out, metric::GARBAGE_PEAK, self.unreclaimed_peak.objects as f64);
        put(out, metric::GARBAGE_PEAK_BYTES, self.unreclaimed_peak.bytes as f64);
    }
}

/// A program's text, made fit for a terminal and cut to its limit.
fn plain(words: &str) -> String {
    let cut: String = words.chars().take(NOTE_CHARACTERS).collect();
    shown::line(&cut).into_owned()
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
