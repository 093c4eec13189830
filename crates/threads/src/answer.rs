//! From the line that a program prints to an observation. What it says is checked against what it was asked.

use std::collections::BTreeMap;

use reprieve_study::derive::put;
use reprieve_study::metric;
use reprieve_study::observation::{Observation, Provenance, Standing};
use reprieve_study::scenario::PlannedRun;
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use serde::Deserialize;

use crate::error::ThreadsError;
use crate::options::Options;
use crate::peer::Identity;
use crate::program::Said;

/// The line. Keys that are not here are left alone.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// Who it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// What it was asked, as it understood it.
    pub options: Options,
    deletes: Deletes,
    delay_ns: Delay,
    /// Times that a reader met an element which it should not have met.
    pub errors: u64,
    writer: Writer,
    readers: Readers,
    unreclaimed_peak: Peak,
    #[serde(default)]
    notes: Vec<String>,
}

/// Of elements removed within the window.
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

impl Answer {
    /// Reads what a program printed.
    ///
    /// # Errors
    /// [`ThreadsError::Program`] if it is no answer, or one to another question, or of a program whose readers met
    /// elements that they should not have met.
    pub fn read(said: &Said, scheme: &str, asked: &Options) -> Result<Answer, ThreadsError> {
        let answer: Answer = said.parse()?;
        if answer.identity.scheme != scheme {
            return Err(said.failed(format!("says that its scheme is {:?}", answer.identity.scheme)));
        }
        if answer.options != *asked {
            return Err(said.failed(format!("was asked for {asked:?} and ran {:?}", answer.options)));
        }
        if answer.errors > 0 {
            return Err(said.failed(format!("its readers met freed memory {} times", answer.errors)));
        }
        Ok(answer)
    }

    /// The observation of that run. `provenance` has what the ground knows; the program's notes are added to it.
    pub fn observe(self, planned: &PlannedRun, mut provenance: Provenance) -> Observation {
        let Identity { library, version, .. } = &self.identity;
        if library != "none" {
            provenance.notes.push(format!("{library} {version}"));
        }
        if let Some(waiting) =
            self.deletes.delivered.checked_sub(self.delay_ns.count).filter(|left| *left > 0)
        {
            provenance.notes.push(match self.deletes.freed {
                0 => "nothing was freed within the run".into(),
                _ => format!("{waiting} deletes of a window were not freed while readers ran"),
            });
        }
        provenance.notes.extend(self.notes.iter().cloned());
        provenance.window_ns = self.options.duration_ms * MILLISECOND_NS;
        let mut out = Observation {
            condition: planned.condition.clone(),
            repetition: planned.repetition,
            standing: Standing::Accepted,
            sweep: planned.sweep.clone(),
            provenance,
            metrics: BTreeMap::new(),
            distributions: BTreeMap::new(),
            timelines: BTreeMap::new(),
            holdouts: Vec::new(),
            trace: None,
        };
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
        let per_s = SECOND_NS as f64 / out.provenance.window_ns.max(1) as f64;
        put(out, metric::THROUGHPUT, readers.lookups as f64 * per_s);
        put(out, metric::GARBAGE_PEAK, self.unreclaimed_peak.objects as f64);
        put(out, metric::GARBAGE_PEAK_BYTES, self.unreclaimed_peak.bytes as f64);
    }
}
