//! Lines of the format: `WORD CHECKSUM JSON`. The word says what the JSON is; the checksum is CRC-32 (of IEEE 802.3, as in
//! gzip), eight hexadecimal digits, over the word, a space and the JSON.
//!
//! | word | JSON |
//! |---|---|
//! | `reprieve-hindsight/1` | [`Header`]: begins a segment; 1 is the version of the format |
//! | `s` | [`Sample`] |
//! | `t` | [`Trigger`] |
//!
//! Later programs may add words, and fields to each JSON; readers skip what they do not know. All else is a new version. The shape
//! of a header line is the same in all versions.

use reprieve_policy::sample::Sample;
use serde::{Deserialize, Serialize};

use crate::sane;

/// The version of the format.
pub const VERSION: u32 = 1;
/// The longest line, bytes. A second of 100 vCPUs that are each off 500 times takes as much.
pub const MOST_LINE_BYTES: usize = 4 << 20;
/// What a segment begins with.
pub(crate) const MAGIC: &str = "reprieve-hindsight/";
const HEADER: &str = "reprieve-hindsight/1";
const SAMPLE: &str = "s";
const TRIGGER: &str = "t";
/// Digits of the checksum.
const DIGITS: usize = 8;
/// The longest text in a header or a trigger, bytes.
const MOST_TEXT_BYTES: usize = 1024;

/// Where a segment was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The kernel's boot ID: times of CLOCK_MONOTONIC compare within one.
    pub boot_id: String,
    /// The machine's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The program's version.
    pub program: String,
}

/// A threshold that was crossed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trigger {
    /// When, by CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// The threshold, as the user wrote it.
    pub threshold: String,
    /// What was measured.
    pub value: String,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// Begins a segment.
    Header(Header),
    /// A sample.
    Sample(Box<Sample>),
    /// A threshold was crossed.
    Trigger(Trigger),
    /// Of a later program.
    Unknown,
}

/// Why a line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLine {
    /// The header of a newer version of the format.
    Newer(u32),
    /// Not what was once written.
    Damaged,
}

/// Writes a header line, with its line break, in place of what `into` held.
pub fn write_header(header: &Header, into: &mut Vec<u8>) {
    write(HEADER, header, into);
}

/// Writes a sample's line. Allocates only if `into` must grow.
pub fn write_sample(sample: &Sample, into: &mut Vec<u8>) {
    write(SAMPLE, sample, into);
}

/// A whole segment, which can be read like a dump.
pub fn segment(header: &Header, samples: &[Sample]) -> Vec<u8> {
    let (mut all, mut line) = (Vec::new(), Vec::new());
    write_header(header, &mut line);
    all.append(&mut line);
    for sample in samples {
        write_sample(sample, &mut line);
        all.append(&mut line);
    }
    all
}

/// Writes a trigger's line.
pub fn write_trigger(trigger: &Trigger, into: &mut Vec<u8>) {
    write(TRIGGER, trigger, into);
}

fn write(word: &str, value: &impl Serialize, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(word.as_bytes());
    into.extend_from_slice(b" 00000000 ");
    let begin = into.len();
    serde_json::to_writer(&mut *into, value).expect("numbers and texts can be written to memory");
    let sum = checksum(word.as_bytes(), &into[begin..]);
    for (place, shift) in (0..DIGITS).zip((0..DIGITS).rev()) {
        into[word.len() + 1 + place] = b"0123456789abcdef"[(sum >> (4 * shift)) as usize & 15];
    }
    into.push(b'\n');
}

fn checksum(word: &[u8], json: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    [word, b" ", json].into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Reads a line without its line break.
///
/// # Errors
/// It is damaged, or the header of a newer version.
pub fn read(line: &[u8]) -> Result<Line, BadLine> {
    let (word, json) = parts(line).ok_or(BadLine::Damaged)?;
    if let Some(version) = word.strip_prefix(MAGIC) {
        let version = version.parse().map_err(|_| BadLine::Damaged)?;
        if version > VERSION {
            return Err(BadLine::Newer(version));
        }
    }
    let parsed = match word {
        HEADER => serde_json::from_slice(json).ok().filter(is_short).map(Line::Header),
        SAMPLE => {
            let sample = serde_json::from_slice(json).ok().filter(sane::is_sane);
            sample.map(|sample| Line::Sample(Box::new(sample)))
        }
        TRIGGER => serde_json::from_slice(json).ok().filter(is_short_trigger).map(Line::Trigger),
        _ => Some(Line::Unknown),
    };
    parsed.ok_or(BadLine::Damaged)
}

/// The word and the JSON, if the checksum is right.
fn parts(line: &[u8]) -> Option<(&str, &[u8])> {
    let space = line.iter().take(64).position(|byte| *byte == b' ')?;
    let (word, rest) = (&line[..space], &line[space + 1..]);
    let (sum, json) = rest.split_at_checked(DIGITS)?;
    let json = json.strip_prefix(b" ")?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let sum = std::str::from_utf8(sum).ok().filter(|_| sum.iter().all(is_digit))?;
    let is_right = u32::from_str_radix(sum, 16) == Ok(checksum(word, json));
    Some((std::str::from_utf8(word).ok().filter(|_| is_right)?, json))
}

fn is_short(header: &Header) -> bool {
    let Header { boot_id, host, kernel, program } = header;
    [boot_id, host, kernel, program].into_iter().all(|text| text.len() <= MOST_TEXT_BYTES)
}

fn is_short_trigger(trigger: &Trigger) -> bool {
    [&trigger.threshold, &trigger.value].into_iter().all(|text| text.len() <= MOST_TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprieve_policy::fingerprint::Off;
    use reprieve_policy::sample::VcpuSample;

    fn sample() -> Sample {
        let vcpu = VcpuSample { offs: vec![Off { since_ns: 5, back_ns: 9 }], ..VcpuSample::default() };
        Sample { at_ns: 10, span_ns: 10, vcpus: vec![vcpu], ..Sample::default() }
    }

    fn line_of(word: &str, json: &str) -> Vec<u8> {
        format!("{word} {:08x} {json}", checksum(word.as_bytes(), json.as_bytes())).into_bytes()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut line = Vec::new();
        write_sample(&sample(), &mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        assert_eq!(read(&line), Ok(Line::Sample(Box::new(sample()))));
        let trigger = Trigger { at_ns: 3, threshold: "gp_p99>50ms".into(), value: "60 ms".into() };
        write_trigger(&trigger, &mut line);
        assert_eq!(read(&line[..line.len() - 1]), Ok(Line::Trigger(trigger)));
        let header = Header { host: "h".into(), ..Header::default() };
        write_header(&header, &mut line);
        assert_eq!(read(&line[..line.len() - 1]), Ok(Line::Header(header)));
    }

    #[test]
    fn the_checksum_is_that_of_gzip() {
        // The check value of CRC-32/ISO-HDLC in the catalogue of G. Cook.
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(b"s", b"{}"), crc32fast::hash(b"s {}"));
    }

    #[test]
    fn a_flipped_bit_or_a_torn_line_is_damage() {
        let mut line = Vec::new();
        write_sample(&sample(), &mut line);
        line.pop();
        for at in 0..line.len() {
            assert_eq!(read(&line[..at]), Err(BadLine::Damaged));
            for bit in 0..8 {
                let mut flipped = line.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(read(&flipped), Err(BadLine::Damaged), "{at} {bit}");
            }
        }
    }

    #[test]
    fn what_is_unknown_is_skipped_and_a_newer_version_refused() {
        assert_eq!(read(&line_of("x", "[1]")), Ok(Line::Unknown));
        assert_eq!(read(&line_of("reprieve-hindsight/2", "{}")), Err(BadLine::Newer(2)));
        assert!(read(&line_of("s", r#"{"at_ns":10,"later":[1]}"#)).is_ok());
        assert_eq!(read(&line_of("s", r#"{"at_ns":-1}"#)), Err(BadLine::Damaged));
        assert_eq!(read(b""), Err(BadLine::Damaged));
    }
}
