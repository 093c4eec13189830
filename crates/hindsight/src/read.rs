//! Reads a ring or a dump. Files may come from anybody: each line is checked, sizes are limited, and what is damaged is counted
//! and skipped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use reprieve_policy::sample::Sample;

use crate::disk;
use crate::line::{self, BadLine, Header, Line, MAGIC, MOST_LINE_BYTES, Trigger, VERSION};
use crate::sane;

/// Most bytes that are read, of all files together.
const MOST_BYTES: u64 = 256 << 20;
/// Most memory for what is read, bytes.
const MOST_KEPT_BYTES: usize = 256 << 20;
/// Of three samples, the last is at least so long after the first, ns: recorders make one a second, and one more at their end.
const LEAST_APART_NS: u64 = 10_000_000;
/// Spans of two samples overlap by at most this, ns: clocks are read one after the other.
const SLACK_NS: u64 = 1_000_000;
/// Most triggers.
const MOST_TRIGGERS: usize = 10_000;

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum ReadError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: no hindsight record; name a folder of `reprieve record --hindsight`, or a dump of it", .0.display())]
    NoRecord(PathBuf),
    #[error("{}: made by a newer program: its format is version {version}, and this program reads up to {VERSION}; read it with that program", path.display())]
    Newer { path: PathBuf, version: u32 },
    #[error("{}: more than {} MiB are too many for a hindsight record", .0.display(), MOST_BYTES >> 20)]
    TooLarge(PathBuf),
    #[error("{}: what it holds takes more than {} MiB of memory; copy some of its segments into another folder and name that, and record less in future (--keep, --disk)", .0.display(), MOST_KEPT_BYTES >> 20)]
    TooMuch(PathBuf),
}

/// Samples of one boot, in order of time. Between two of them time may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Where they were made.
    pub header: Header,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Thresholds that were crossed.
    pub triggers: Vec<Trigger>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// A stretch for each boot and program; none is empty.
    pub stretches: Vec<Stretch>,
    /// Damaged lines.
    pub damaged: u64,
    /// Torn last lines of segments: what is left of a write when its process is killed.
    pub torn: u64,
}

/// Reads a folder with a ring, or a dump.
///
/// # Errors
/// It is neither, too large, or of a newer version.
pub fn read(path: &Path) -> Result<Record, ReadError> {
    let failed = |source| ReadError::Io { path: path.into(), source };
    let mut reader = Reader::default();
    if std::fs::metadata(path).map_err(failed)?.is_dir() {
        for found in disk::segments(path).map_err(failed)? {
            match disk::open(&found.path) {
                Ok(file) => reader.file(&found.path, file)?,
                // The writer has forgotten it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(ReadError::Io { path: found.path, source }),
            }
        }
    } else {
        // Here a link is what the user names.
        let real = std::fs::canonicalize(path).map_err(failed)?;
        reader.file(path, disk::open(&real).map_err(failed)?)?;
    }
    reader.record.stretches.retain(|stretch| !stretch.samples.is_empty());
    match reader.has_header {
        true => Ok(reader.record),
        false => Err(ReadError::NoRecord(path.into())),
    }
}

/// A segment's content, as far as its ring needs it.
pub(crate) struct Held {
    /// Recorded time, ns: 0 of a segment that cannot be read.
    pub span_ns: u64,
    /// True if there is nothing, or a header with no more than a torn line behind it: its writer was killed before the first sample.
    pub is_nothing: bool,
}

/// Looks into a segment.
///
/// # Errors
/// [`ReadError::Newer`]; everything else that is wrong with it is no error.
pub(crate) fn held(path: &Path) -> Result<Held, ReadError> {
    let mut reader = Reader::default();
    let done = disk::open(path).map(|file| reader.file(path, file));
    if let Ok(Err(error @ ReadError::Newer { .. })) = done {
        return Err(error);
    }
    let is_read = matches!(done, Ok(Ok(())));
    let record = &reader.record;
    let samples = record.stretches.iter().flat_map(|stretch| &stretch.samples);
    // What was read before an error counts.
    let span_ns = samples.clone().fold(0, |sum: u64, sample| sum.saturating_add(sample.span_ns));
    let is_bare = samples.count() == 0 && record.damaged == 0 && reader.triggers == 0 && reader.unknown == 0;
    Ok(Held { span_ns, is_nothing: is_read && is_bare })
}

#[derive(Default)]
struct Reader {
    record: Record,
    has_header: bool,
    bytes: u64,
    kept_bytes: usize,
    triggers: usize,
    /// Lines that later programs know.
    unknown: u64,
    /// When each vCPU of the stretch was back last, by number, ns.
    back_ns: Vec<u64>,
}

impl Reader {
    fn file(&mut self, path: &Path, file: File) -> Result<(), ReadError> {
        let failed = |source| ReadError::Io { path: path.into(), source };
        let mut input = BufReader::new(file);
        let begin = input.fill_buf().map_err(failed)?;
        // So that a large file of another kind is not searched for lines.
        if !begin.starts_with(&MAGIC.as_bytes()[..MAGIC.len().min(begin.len())]) {
            return Err(ReadError::NoRecord(path.into()));
        }
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = MOST_LINE_BYTES as u64 + 1;
            let read = input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(failed)?;
            self.bytes += read as u64;
            if self.bytes > MOST_BYTES {
                return Err(ReadError::TooLarge(path.into()));
            }
            if self.kept_bytes > MOST_KEPT_BYTES {
                return Err(ReadError::TooMuch(path.into()));
            }
            if read == 0 {
                return Ok(());
            }
            if line.pop_if(|last| *last == b'\n').is_some() {
                self.line(path, &line)?;
            } else if read as u64 == limit {
                self.record.damaged += 1;
                self.bytes += skip_line(&mut input, MOST_BYTES - self.bytes).map_err(failed)?;
            } else {
                self.record.torn += 1;
            }
        }
    }

    fn line(&mut self, path: &Path, line: &[u8]) -> Result<(), ReadError> {
        match line::read(line) {
            Err(BadLine::Newer(version)) => return Err(ReadError::Newer { path: path.into(), version }),
            Err(BadLine::Damaged) => {
                self.record.damaged += 1;
                if line.starts_with(MAGIC.as_bytes()) {
                    // The samples behind it are not those of the header before.
                    self.header(Header::default());
                }
            }
            Ok(Line::Header(header)) => self.header(header),
            Ok(Line::Sample(sample)) => self.sample(*sample),
            Ok(Line::Trigger(trigger)) => self.trigger(trigger),
            Ok(Line::Unknown) => self.unknown += 1,
        }
        Ok(())
    }

    fn header(&mut self, header: Header) {
        self.has_header = true;
        if self.record.stretches.last().is_none_or(|last| last.header != header) {
            self.kept_bytes += 4096;
            self.back_ns.clear();
            self.record.stretches.push(Stretch { header, ..Stretch::default() });
        }
    }

    fn sample(&mut self, sample: Sample) {
        let Some(stretch) = self.record.stretches.last_mut() else {
            self.record.damaged += 1;
            return;
        };
        let mut before = stretch.samples.iter().rev().map(|before| before.at_ns);
        // Spans of two samples share no time.
        let is_next = before.next().is_none_or(|last_ns| last_ns + sample.span_ns <= sample.at_ns + SLACK_NS)
            && before.next().is_none_or(|first_ns| first_ns.saturating_add(LEAST_APART_NS) <= sample.at_ns);
        if !is_next || !follows(&mut self.back_ns, &sample) {
            self.record.damaged += 1;
            return;
        }
        self.kept_bytes += sane::bytes(&sample);
        stretch.samples.push(sample);
    }

    fn trigger(&mut self, trigger: Trigger) {
        self.triggers += 1;
        if let Some(stretch) = self.record.stretches.last_mut().filter(|_| self.triggers <= MOST_TRIGGERS) {
            stretch.triggers.push(trigger);
        }
    }
}

/// Whether all times off begin after the ones before; remembers when each vCPU was back.
fn follows(back_ns: &mut Vec<u64>, sample: &Sample) -> bool {
    let before = |vcpu: usize| back_ns.get(vcpu).copied().unwrap_or(0);
    let is_after = sample.vcpus.iter().all(|vcpu| {
        let first = vcpu.offs.first();
        first.is_none_or(|off| off.since_ns >= before(vcpu.vcpu))
    });
    for vcpu in sample.vcpus.iter().filter(|_| is_after) {
        let Some(last) = vcpu.offs.last() else { continue };
        if back_ns.len() <= vcpu.vcpu {
            // A sane number is small.
            back_ns.resize(vcpu.vcpu + 1, 0);
        }
        back_ns[vcpu.vcpu] = last.back_ns;
    }
    is_after
}

/// Skips the rest of a line, of at most so many bytes; says how many it were.
fn skip_line(input: &mut impl BufRead, most: u64) -> io::Result<u64> {
    Ok(input.take(most).skip_until(b'\n')? as u64)
}
