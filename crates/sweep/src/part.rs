//! Parts: the files of finished runs, one for each attempt at a shard. A part has the suffix `.open` until it is whole. Each line is
//! a JSON object whose last field, `crc`, is the CRC-32 (of IEEE 802.3, as in gzip; eight hexadecimal digits) of all bytes before it,
//! from the brace to the comma. The first line says who made it; every other line is a finished run:
//!
//! ```json
//! {"attempt":{"sweep_version":1,"simulator":"...","shard":"3/10","host":"...","pid":17,"began_unix_s":1790000000},"crc":"..."}
//! {"id":"...","result":{"metrics":{"gp_p99_ns":1.5e6},"ground":"...","events":12,"result_hash":"..."},"crc":"..."}
//! {"id":"...","error":"...","crc":"..."}
//! ```
//!
//! A line of a run holds nothing of the machine, of the time, or of the attempt: two lines of one run are equal to the byte.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reprieve_study::Observation;
use serde::{Deserialize, Serialize};

use crate::plan::VERSION;
use crate::{Id, Plan, Result, Shard, SweepError};

/// The folder of the parts.
pub const PARTS: &str = "parts";
/// What the name of a whole part ends in.
pub const WHOLE: &str = ".jsonl";
/// What the name of another one ends in.
pub const OPEN: &str = ".jsonl.open";
/// The longest line, bytes.
pub const MOST_LINE_BYTES: usize = 1 << 20;
/// The longest error or note of a run that is kept, bytes.
const MOST_TEXT_BYTES: usize = 4096;
/// How often what was written is brought to the disk: what a machine that crashes loses of a long attempt.
const SYNC: Duration = Duration::from_secs(10);

/// Who made a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// [`VERSION`].
    pub sweep_version: u32,
    /// The simulator.
    pub simulator: String,
    /// Its shard.
    pub shard: Shard,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// When it began, by the clock of the day, seconds since 1970.
    pub began_unix_s: u64,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The run.
    pub id: Id,
    /// Its result, or why it has none.
    #[serde(flatten)]
    pub ended: Ended,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// With this result.
    Result(Values),
    /// It failed, and would again.
    Error(String),
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// By the identifiers of [`reprieve_study::metric`].
    pub metrics: BTreeMap<String, f64>,
    /// Where it ran.
    pub ground: String,
    /// Events that were simulated.
    pub events: u64,
    /// Hash of all that was observed.
    pub result_hash: String,
    /// What must be known with it, such as a limit that ended the run early.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Outcome {
    /// Of an observation, or of the error in its place.
    pub fn of(id: Id, observed: Result<Observation, String>) -> Outcome {
        let ended = match observed {
            Ok(observation) => Ended::Result(Values {
                // A number that JSON has no form for is no measurement.
                metrics: observation.metrics.into_iter().filter(|(_, value)| value.is_finite()).collect(),
                ground: observation.provenance.ground,
                events: observation.provenance.events,
                result_hash: observation.provenance.result_hash,
                note: shortened(observation.provenance.notes.join("; ")),
            }),
            Err(error) => Ended::Error(shortened(error)),
        };
        Outcome { id, ended }
    }
}

/// At most [`MOST_TEXT_BYTES`] of it.
fn shortened(mut text: String) -> String {
    let end = (0..=MOST_TEXT_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

/// A line, with its break.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("numbers and texts can be written to memory");
    line.pop();
    line.push(b',');
    let sum = crc32fast::hash(&line);
    line.extend_from_slice(format!("\"crc\":\"{sum:08x}\"}}\n").as_bytes());
    line
}

/// The JSON of a line without its break, if its checksum is right.
pub fn checked(line: &[u8]) -> Option<&[u8]> {
    const TAIL: usize = "\"crc\":\"00000000\"}".len();
    let (before, tail) = line.split_at_checked(line.len().checked_sub(TAIL)?)?;
    let sum = format!("\"crc\":\"{:08x}\"}}", crc32fast::hash(before));
    (tail == sum.as_bytes()).then_some(line)
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// Who made the part.
    Attempt {
        /// Them.
        attempt: Attempt,
    },
    /// A finished run.
    Outcome(Outcome),
}

/// A part that this process makes.
pub struct Part {
    file: File,
    open: PathBuf,
    whole: PathBuf,
    synced: Instant,
}

impl Part {
    /// Begins one, under a name that no other has.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(plan: &Plan, shard: Shard) -> Result<Part> {
        let folder = plan.folder().join(PARTS);
        fs::create_dir_all(&folder).map_err(SweepError::io(&folder))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let attempt = Attempt {
            sweep_version: VERSION,
            simulator: plan.simulator().into(),
            shard,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            began_unix_s: now.as_secs(),
        };
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        let host: String = attempt.host.chars().map(plain).take(64).collect();
        let of = plan.mark();
        let name = format!("{}-of-{}.{of}.{host}.{}.{}", shard.number, shard.of, attempt.pid, now.as_nanos());
        let (open, whole) = (folder.join(format!("{name}{OPEN}")), folder.join(format!("{name}{WHOLE}")));
        let file =
            OpenOptions::new().write(true).create_new(true).open(&open).map_err(SweepError::io(&open))?;
        let mut part = Part { file, open, whole, synced: Instant::now() };
        #[derive(Serialize)]
        struct First {
            attempt: Attempt,
        }
        part.write(&line(&First { attempt }))?;
        Ok(part)
    }

    /// Adds a finished run.
    ///
    /// # Errors
    /// It cannot be written, as on a full disk. What was written before is kept.
    pub fn push(&mut self, outcome: &Outcome) -> Result {
        self.write(&line(outcome))?;
        if self.synced.elapsed() >= SYNC {
            self.file.sync_data().map_err(SweepError::io(&self.open))?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    /// Makes sure that what was written stays. Only now some file systems say that there was no room.
    ///
    /// # Errors
    /// It does not.
    pub fn keep(&self) -> Result {
        self.file.sync_all().map_err(SweepError::io(&self.open))
    }

    /// The shard is done.
    ///
    /// # Errors
    /// The part cannot be kept, or be given its name.
    pub fn end(self) -> Result {
        self.keep()?;
        fs::rename(&self.open, &self.whole).map_err(SweepError::io(&self.whole))
    }

    /// In one piece, so that a process that is killed leaves whole lines, and no buffer that nobody has seen.
    fn write(&mut self, line: &[u8]) -> Result {
        self.file.write_all(line).map_err(SweepError::io(&self.open))
    }
}

/// The shard in a part's name, if it was made for a plan of this mark: another plan's shards have other runs.
pub fn shard_in(path: &Path, mark: &str) -> Option<Shard> {
    let name = path.file_name()?.to_str()?;
    let (number, rest) = name.split_once("-of-")?;
    let (of, rest) = rest.split_once('.')?;
    Shard::new(number.parse().ok()?, of.parse().ok()?).filter(|_| rest.split('.').next() == Some(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ended: Ended) -> Outcome {
        Outcome { id: "0123456789abcdef0123456789abcdef".parse().unwrap(), ended }
    }

    #[test]
    fn a_line_is_read_as_it_is_written_and_not_if_a_byte_is_wrong() {
        let metrics = BTreeMap::from([("gp_p99_ns".to_string(), 0.1 + 0.2), ("gp_count".to_string(), 3.0)]);
        let values = Values {
            metrics,
            ground: "sim".into(),
            events: 1,
            result_hash: "ab".into(),
            note: "ended early".into(),
        };
        for ended in [Ended::Result(values), Ended::Error("it \"failed\"\n".into())] {
            let mut line = line(&outcome(ended.clone()));
            assert_eq!(line.pop(), Some(b'\n'));
            assert!(!line.contains(&b'\n'));
            let read: Line = serde_json::from_slice(checked(&line).unwrap()).unwrap();
            assert_eq!(read, Line::Outcome(outcome(ended)));
            for place in 0..line.len() {
                let mut damaged = line.clone();
                damaged[place] ^= 1;
                assert_eq!(checked(&damaged), None, "{place}");
                assert_eq!(checked(&line[..place]), None, "{place}");
            }
        }
    }

    #[test]
    fn what_has_no_form_in_json_is_left_out_and_a_long_error_is_cut() {
        let mut observation = Observation::default();
        observation.metrics.extend([("a".to_string(), f64::NAN), ("b".to_string(), 1.0)]);
        let id = outcome(Ended::Error(String::new())).id;
        let Ended::Result(values) = Outcome::of(id, Ok(observation)).ended else { panic!() };
        assert_eq!(values.metrics.into_iter().collect::<Vec<_>>(), [("b".to_string(), 1.0)]);
        let Ended::Error(error) = Outcome::of(id, Err("ä".repeat(9_000))).ended else { panic!() };
        assert!(error.len() <= MOST_TEXT_BYTES && error.ends_with('ä'));
    }

    #[test]
    fn a_part_s_name_tells_its_shard() {
        let shard_in = |name: &str| shard_in(Path::new(name), "12345678");
        assert_eq!(shard_in("d/3-of-10.12345678.host.1.2.jsonl"), Shard::new(3, 10));
        assert_eq!(shard_in("d/3-of-2.12345678.host.1.2.jsonl"), None);
        assert_eq!(shard_in("d/3-of-10.87654321.host.1.2.jsonl"), None, "of another plan");
        assert_eq!(shard_in("d/other.jsonl"), None);
    }
}
