//! When a host kept a VM's vCPUs from running, recorded there: the simulator can replay it, under another guest, another RCU
//! setting, or a remedy.
//!
//! A file is JSON, with the times of each vCPU as pairs of numbers, so that 10,000 of them take some 200 KB. It is a user's
//! file, and nothing of it is trusted: see [`Tape::from_json`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::grace_period::Span;
use crate::units;

/// Version of a file's shape.
const VERSION: u32 = 1;
/// Largest file, bytes.
pub const FILE_BYTES: u64 = 64 << 20;
/// Most vCPUs.
const VCPUS: usize = 1_024;
/// Most times off, of all vCPUs together.
const TIMES: usize = 2_000_000;
/// Longest recording.
const LENGTH_NS: u64 = 3_600 * units::SECOND_NS;
/// Most figures of the run that was recorded.
const METRICS: usize = 256;
/// Longest text.
const TEXT_BYTES: usize = 4_096;

/// When each vCPU was kept from running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tape {
    version: u32,
    /// What was recorded, where, and how; for people.
    pub source: String,
    /// How long, ns. Times are counted from its beginning.
    pub length_ns: u64,
    /// For each vCPU: when it was off, and for how long, ns.
    off: Vec<Vec<(u64, u64)>>,
    /// What the recorded run itself showed, by [`crate::metric`] identifier; a replay is held against it. Empty if nobody looked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

/// Why a file is no recording.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a recording of vCPUs: {0}")]
pub struct BadTape(String);

impl Tape {
    /// Of the times at which each vCPU was off within `window`.
    pub fn new(source: &str, window: Span, off: &[Vec<Span>]) -> Tape {
        let times = |spans: &Vec<Span>| {
            let within = spans.iter().filter_map(|span| span.overlap(window));
            within.map(|span| (span.start_ns - window.start_ns, span.length_ns())).collect()
        };
        Tape {
            version: VERSION,
            source: source.into(),
            length_ns: window.length_ns(),
            off: off.iter().map(times).collect(),
            metrics: BTreeMap::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is none, of another version, larger than any, or its times are not in order.
    pub fn from_json(text: &str) -> Result<Tape, BadTape> {
        let read: Tape = serde_json::from_str(text).map_err(|error| BadTape(error.to_string()))?;
        read.check().map_err(BadTape)?;
        Ok(read)
    }

    /// As a file.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written")
    }

    /// How many vCPUs it has.
    pub fn vcpus(&self) -> usize {
        self.off.len()
    }

    /// When that vCPU was off; in order, and apart from each other.
    pub fn off(&self, vcpu: usize) -> impl Iterator<Item = Span> {
        self.off[vcpu].iter().map(|(at_ns, for_ns)| Span::new(*at_ns, at_ns + for_ns))
    }

    fn check(&self) -> Result<(), String> {
        let within = |what: &str, number: usize, least: usize, most: usize| match number {
            number if (least..=most).contains(&number) => Ok(()),
            _ => Err(format!("{number} {what}, not {least} to {most}")),
        };
        if self.version != VERSION {
            return Err(format!("version {}; this program reads {VERSION}", self.version));
        }
        within("vCPUs", self.off.len(), 1, VCPUS)?;
        within("times", self.off.iter().map(Vec::len).sum(), 0, TIMES)?;
        within("figures", self.metrics.len(), 0, METRICS)?;
        within("bytes of source", self.source.len(), 0, TEXT_BYTES)?;
        if !(1..=LENGTH_NS).contains(&self.length_ns) {
            return Err(format!("a length of {} ns, not up to an hour", self.length_ns));
        }
        if let Some((name, value)) = self.metrics.iter().find(|(_, value)| !value.is_finite()) {
            return Err(format!("{name} is {value}"));
        }
        for (vcpu, times) in self.off.iter().enumerate() {
            let mut before_ns = 0;
            for (at_ns, for_ns) in times {
                let end_ns = at_ns.checked_add(*for_ns).filter(|end_ns| *end_ns <= self.length_ns);
                match end_ns {
                    Some(end_ns) if *at_ns >= before_ns => before_ns = end_ns,
                    _ => return Err(format!("vCPU {vcpu}: its time at {at_ns} ns is out of order")),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape() -> Tape {
        let spans = [Span::new(90, 110), Span::new(150, 170), Span::new(190, 250)];
        Tape::new("a test", Span::new(100, 200), &[spans.to_vec(), Vec::new()])
    }

    #[test]
    fn times_are_counted_from_the_window_s_beginning_and_end_with_it() {
        let found = tape();
        let off: Vec<Span> = found.off(0).collect();
        assert_eq!(off, [Span::new(0, 10), Span::new(50, 70), Span::new(90, 100)]);
        assert_eq!((found.vcpus(), found.off(1).count(), found.length_ns), (2, 0, 100));
        assert_eq!(Tape::from_json(&found.to_json()), Ok(found));
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let with = |off: &str| {
            let text = format!(r#"{{"version":1,"source":"","length_ns":100,"off":{off}}}"#);
            Tape::from_json(&text).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with("[[[0,10],[10,5]]]"), Ok(()));
        for bad in ["[[[0,10],[9,5]]]", "[[[90,11]]]", "[[[1,18446744073709551615]]]", "[]", "[[[-1,2]]]"] {
            assert!(with(bad).unwrap_err().starts_with("not a recording of vCPUs: "), "{bad}");
        }
        let newer = tape().to_json().replace("\"version\":1", "\"version\":2");
        let said = Tape::from_json(&newer).unwrap_err().to_string();
        assert!(said.ends_with("version 2; this program reads 1"), "{said}");
        assert!(Tape::from_json("{}").is_err());
    }
}
