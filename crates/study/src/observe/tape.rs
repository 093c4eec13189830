//! A recording of when a host kept a VM's vCPUs from running. The simulator can replay it with another guest, another
//! RCU setting, or a remedy.
//!
//! A file is JSON, with the times of each vCPU as pairs of numbers: 10,000 of them take some 200 KB. The file may
//! come from anybody, so nothing in it is trusted: see [`Tape::from_json`].
//!
//! Invariant: every file that is written can be read again.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::observe::grace_period::Span;
use crate::observe::metric;
use crate::{shown, units};

/// Version of a file's shape.
const VERSION: u32 = 1;
/// Largest file, bytes.
pub const FILE_BYTES: u64 = 64 << 20;
/// Most vCPUs.
pub const VCPUS: usize = 1_024;
/// Most times off, of all vCPUs together.
const TIMES: usize = 2_000_000;
/// The largest value of a metric: more than any count or time of a run.
const MOST_VALUE: f64 = 1e18;
/// Longest recording.
const LENGTH_NS: u64 = 3_600 * units::SECOND_NS;
/// Longest text.
const TEXT_BYTES: usize = 4_096;

/// When each vCPU was kept from running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tape {
    version: u32,
    /// What was recorded, where, and how; for people.
    pub source: String,
    /// Length of the recording, ns. Times count from its beginning.
    pub length_ns: u64,
    /// For each vCPU, when it was off and for how long, ns.
    #[serde(deserialize_with = "few_vcpus")]
    off: Vec<Vec<(u64, u64)>>,
    /// Metrics of the recorded run, by [`crate::observe::metric`] identifier, for comparison with a replay. Empty in
    /// files of `reprieve record`, which sees nothing inside the guest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

/// Why a file is no recording.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a recording of vCPUs: {0}")]
pub struct BadTape(String);

/// Read first, because a file of another version may have another shape.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Tape {
    /// A recording of the times at which each vCPU was off within `window`; overlapping times of one vCPU are merged.
    /// It is cut where a file could not hold all of them: see [`Tape::length_ns`].
    pub fn new(window: Span, off: &[Vec<Span>]) -> Tape {
        let within = |spans: &Vec<Span>| -> Vec<Span> {
            let mut within: Vec<Span> = spans.iter().filter_map(|span| span.overlap(window)).collect();
            within.sort_unstable_by_key(|span| (span.start_ns, span.end_ns));
            within
        };
        let off: Vec<Vec<Span>> = off.iter().take(VCPUS).map(within).collect();
        let length_ns = window.length_ns().min(LENGTH_NS);
        let end_ns = first_too_many(&off).unwrap_or(u64::MAX).min(window.start_ns + length_ns);
        let window = Span::new(window.start_ns, end_ns.max(window.start_ns));
        Tape {
            version: VERSION,
            source: String::new(),
            length_ns: window.length_ns(),
            off: off.iter().map(|spans| joined(spans, window)).collect(),
            metrics: BTreeMap::new(),
        }
    }

    /// Adds what was recorded, and the metrics of the recorded run.
    pub fn described(self, source: &str, metrics: &BTreeMap<String, f64>) -> Tape {
        let end = (0..=TEXT_BYTES.min(source.len())).rev().find(|at| source.is_char_boundary(*at));
        let known = metrics.iter().filter(|(id, value)| metric::find(id).is_some() && value.is_finite());
        Tape {
            source: source[..end.unwrap_or(0)].into(),
            metrics: known.map(|(id, value)| (id.clone(), *value)).collect(),
            ..self
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The text is no recording, of another version, too large, or its times are not in order.
    pub fn from_json(text: &str) -> Result<Tape, BadTape> {
        let bad = |error: serde_json::Error| BadTape(error.to_string());
        let Versioned { version } = serde_json::from_str(text).map_err(bad)?;
        if version != VERSION {
            return Err(BadTape(format!("version {version}; this program reads {VERSION}")));
        }
        let mut read: Tape = serde_json::from_str(text).map_err(bad)?;
        read.check().map_err(BadTape)?;
        read.metrics.retain(|id, value| metric::find(id).is_some() && (0.0..=MOST_VALUE).contains(value));
        // It is shown on pages and in files.
        read.source = shown::line(&read.source).into_owned();
        Ok(read)
    }

    /// The text of a file.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written")
    }

    /// Number of vCPUs.
    pub fn vcpus(&self) -> usize {
        self.off.len()
    }

    /// Times at which that vCPU was off, in order and without overlap.
    pub fn off(&self, vcpu: usize) -> impl Iterator<Item = Span> {
        self.off[vcpu].iter().map(|(at_ns, for_ns)| Span::new(*at_ns, at_ns + for_ns))
    }

    fn check(&self) -> Result<(), String> {
        let within = |what: &str, number: usize, least: usize, most: usize| match number {
            number if (least..=most).contains(&number) => Ok(()),
            _ => Err(format!("{number} {what}, not {least} to {most}")),
        };
        within("vCPUs", self.off.len(), 1, VCPUS)?;
        within("times", self.off.iter().map(Vec::len).sum(), 0, TIMES)?;
        within("bytes of source", self.source.len(), 0, TEXT_BYTES)?;
        if !(1..=LENGTH_NS).contains(&self.length_ns) {
            return Err(format!("a length of {} ns, not 1 ns to an hour", self.length_ns));
        }
        for (vcpu, times) in self.off.iter().enumerate() {
            let mut before_ns = 0;
            for (at_ns, for_ns) in times {
                let end_ns = at_ns.checked_add(*for_ns).filter(|end_ns| *end_ns <= self.length_ns);
                match end_ns {
                    Some(end_ns) if *at_ns >= before_ns && *for_ns > 0 => before_ns = end_ns,
                    _ => return Err(format!("vCPU {vcpu}: its time at {at_ns} ns is empty or out of order")),
                }
            }
        }
        Ok(())
    }
}

/// When the first time begins that exceeds the limit, if there are that many.
fn first_too_many(off: &[Vec<Span>]) -> Option<u64> {
    let count: usize = off.iter().map(Vec::len).sum();
    if count <= TIMES {
        return None;
    }
    let mut starts: Vec<u64> = off.iter().flatten().map(|span| span.start_ns).collect();
    starts.sort_unstable();
    Some(starts[TIMES])
}

/// Times within `window`, counted from its beginning; those that overlap, or follow each other at once, are one.
fn joined(spans: &[Span], window: Span) -> Vec<(u64, u64)> {
    let mut joined: Vec<Span> = Vec::new();
    for span in spans.iter().filter_map(|span| span.overlap(window)) {
        match joined.last_mut() {
            Some(last) if span.start_ns <= last.end_ns => last.end_ns = last.end_ns.max(span.end_ns),
            _ => joined.push(span),
        }
    }
    joined.iter().map(|span| (span.start_ns - window.start_ns, span.length_ns())).collect()
}

/// Reads no more lists than there may be vCPUs: an empty list takes three bytes of a file, and eight times as much
/// memory.
fn few_vcpus<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<(u64, u64)>>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Vec<(u64, u64)>>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(out, "at most {VCPUS} lists of pairs of numbers")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                all.push(one);
                if all.len() > VCPUS {
                    return Err(serde::de::Error::invalid_length(all.len(), &self));
                }
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Few)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape() -> Tape {
        let spans = [Span::new(150, 170), Span::new(90, 110), Span::new(190, 250), Span::new(160, 175)];
        Tape::new(Span::new(100, 200), &[spans.to_vec(), Vec::new()])
    }

    #[test]
    fn times_are_counted_from_the_window_s_beginning_and_end_with_it() {
        let found = tape();
        let off: Vec<Span> = found.off(0).collect();
        assert_eq!(off, [Span::new(0, 10), Span::new(50, 75), Span::new(90, 100)]);
        assert_eq!((found.vcpus(), found.off(1).count(), found.length_ns), (2, 0, 100));
        assert_eq!(Tape::from_json(&found.to_json()), Ok(found));
    }

    #[test]
    fn whatever_is_written_can_be_read_again() {
        let many: Vec<Span> = (0..TIMES as u64 + 10).map(|at| Span::new(2 * at, 2 * at + 1)).collect();
        let cut = Tape::new(Span::new(0, u64::MAX), &[many, vec![Span::new(0, u64::MAX)]]);
        // The other vCPU's one time is among them.
        assert_eq!((cut.length_ns, cut.off[0].len()), (2 * (TIMES as u64 - 1), TIMES - 1));
        let metrics = BTreeMap::from([
            ("x".repeat(1 << 20), 1.0),
            (metric::GP_MEAN.to_string(), 2.0),
            (metric::GP_MAX.to_string(), f64::NAN),
        ]);
        let cut = cut.described(&"\u{e4}".repeat(TEXT_BYTES), &metrics);
        assert_eq!(cut.metrics, BTreeMap::from([(metric::GP_MEAN.to_string(), 2.0)]));
        assert_eq!(Tape::from_json(&cut.to_json()), Ok(cut));
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let with = |off: &str| {
            let text = format!(r#"{{"version":1,"source":"","length_ns":100,"off":{off}}}"#);
            Tape::from_json(&text).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with("[[[0,10],[10,5]]]"), Ok(()));
        let empties = format!("[{}[]]", "[],".repeat(VCPUS));
        let bads = [
            "[[[0,10],[9,5]]]",
            "[[[90,11]]]",
            "[[[1,18446744073709551615]]]",
            "[]",
            "[[[-1,2]]]",
            "[[[1,0]]]",
        ];
        for bad in bads.into_iter().chain([empties.as_str()]) {
            assert!(with(bad).unwrap_err().starts_with("not a recording of vCPUs: "), "{bad}");
        }
        let newer = tape().to_json().replace("\"version\":1", "\"version\":2,\"shape\":0");
        let said = Tape::from_json(&newer).unwrap_err().to_string();
        assert!(said.ends_with("version 2; this program reads 1"), "{said}");
        assert!(Tape::from_json("{}").is_err());
    }
}
