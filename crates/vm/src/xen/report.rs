//! What a domU measured, as it stands in its console's log. guest/xen/README.md has the lines.
//!
//! Nothing is taken on trust: numbers are parsed, their count is bounded and must be the one that the last line says,
//! and a checksum over all of them must be right. So a log that lost or mixed up lines is an error, not a result.

use crate::{Result, VmError, qemu};

use super::settings::SAMPLES_MAX;

/// Marks the program's lines; what else is on a console (the kernel's words) does not begin so.
const MARK: &str = "reprieve ";
/// FNV-1a's basis and prime (Fowler, Noll, Vo), here over 64-bit words.
const HASH_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x100_0000_01b3;

/// One wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the task ran again, ns after the window's start.
    pub woken_ns: u64,
    /// How long after the time asked for.
    pub late_ns: u64,
}

/// What a domU measured in one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// When it began and ended, by the domU's monotonic clock, ns.
    pub mono_ns: [u64; 2],
    /// The same by the pCPU's time stamp counter.
    pub tsc: [u64; 2],
    /// All of its wake-ups, in order.
    pub samples: Vec<Sample>,
}

impl Report {
    /// Length of the window.
    pub fn window_ns(&self) -> u64 {
        self.mono_ns[1].saturating_sub(self.mono_ns[0])
    }

    /// When the counter had that value, ns after the segment's start; before and after it, its ends. The domU read its clock
    /// and the counter at both ends: that makes one the other.
    pub fn ns(&self, tsc: u64) -> u64 {
        // Any two numbers: a domU wrote them.
        let [from, to] = self.tsc;
        let ticks = to.saturating_sub(from).max(1);
        let since = tsc.saturating_sub(from).min(ticks);
        (u128::from(since) * u128::from(self.window_ns()) / u128::from(ticks)) as u64
    }

    /// Whether the counter had that value within the segment.
    pub fn is_within(&self, tsc: u64) -> bool {
        (self.tsc[0]..=self.tsc[1]).contains(&tsc)
    }

    /// Reads a console's log: its segments, in order.
    ///
    /// # Errors
    /// A log that is not whole or has another number of segments, with its last lines.
    pub fn parse(log: &[u8], segments: usize) -> Result<Vec<Report>> {
        let mut reader = Reader::default();
        let text = String::from_utf8_lossy(log);
        // A terminal's line ends, and what a kernel printed into the middle of nothing.
        let lines = text.lines().map(|line| line.trim_end_matches('\r'));
        let read = lines
            .filter_map(|line| line.strip_prefix(MARK))
            .try_for_each(|line| reader.line(line))
            .and_then(|()| reader.finish(segments));
        read.map_err(|problem| VmError::Guest {
            problem: format!("the measuring domU {problem}"),
            console: qemu::console_tail(log),
        })
    }
}

#[derive(Default)]
struct Reader {
    reports: Vec<Report>,
    instants: Vec<[u64; 2]>,
    samples: Vec<Sample>,
    /// Of all segments.
    count: u64,
    /// Of the last sample.
    woken_ns: u64,
    hash: Option<u64>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "at" if self.instants.len() < 2 => self.instants.push(pair(rest, ' ', 10)?),
            "samples" => rest.split(' ').try_for_each(|sample| self.sample(sample))?,
            "end" => self.end(rest)?,
            "failed" => return Err(format!("failed: {}", crate::error::plain(rest))),
            _ => return Err(format!("said {:?}, which it never does", crate::error::plain(line))),
        }
        Ok(())
    }

    fn sample(&mut self, text: &str) -> Result<(), String> {
        let [since_ns, late_ns] = pair(text, ':', 16)?;
        self.count += 1;
        if self.count > SAMPLES_MAX {
            return Err(format!("reported more than {SAMPLES_MAX} samples"));
        }
        let hash = self.hash.unwrap_or(HASH_BASIS);
        self.hash = Some([since_ns, late_ns].into_iter().fold(hash, mix));
        self.woken_ns = self.woken_ns.saturating_add(since_ns);
        self.samples.push(Sample { woken_ns: self.woken_ns, late_ns });
        Ok(())
    }

    fn end(&mut self, rest: &str) -> Result<(), String> {
        let said = rest.split_once(' ').and_then(|(count, hash)| {
            Some((count.parse::<usize>().ok()?, u64::from_str_radix(hash, 16).ok()?))
        });
        let is = (self.samples.len(), self.hash.unwrap_or(HASH_BASIS));
        if said != Some(is) {
            return Err(format!("sent {} samples, but its last line says {rest:?}", is.0));
        }
        let [start, end] = self.instants[..] else {
            return Err("did not say when a segment began and ended".into());
        };
        let samples = std::mem::take(&mut self.samples);
        if samples.is_empty() {
            return Err("reported a segment without samples".into());
        }
        self.reports.push(Report { mono_ns: [start[0], end[0]], tsc: [start[1], end[1]], samples });
        (self.woken_ns, self.hash) = (0, None);
        self.instants.clear();
        Ok(())
    }

    fn finish(&mut self, segments: usize) -> Result<Vec<Report>, String> {
        let open = !self.samples.is_empty() || !self.instants.is_empty();
        if open || self.reports.len() != segments {
            let whole = self.reports.len();
            return Err(format!("reported {whole} of {segments} segments before it ended"));
        }
        Ok(std::mem::take(&mut self.reports))
    }
}

fn pair(text: &str, separator: char, radix: u32) -> Result<[u64; 2], String> {
    let number = |text: &str| u64::from_str_radix(text, radix).ok();
    let parsed = text.split_once(separator).and_then(|(a, b)| Some([number(a)?, number(b)?]));
    parsed.ok_or_else(|| format!("sent {:?} for two numbers", crate::error::plain(text)))
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(HASH_PRIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log with these samples, and the kernel's words around them.
    fn log(samples: &[(u64, u64)]) -> String {
        let hash = samples.iter().flat_map(|(a, b)| [*a, *b]).fold(HASH_BASIS, mix);
        let mut text = "[    0.1] Linux\r\nreprieve at 1000 7\r\nreprieve at 5000 9\r\n".to_string();
        for line in samples.chunks(2) {
            let words: Vec<String> = line.iter().map(|(a, b)| format!("{a:x}:{b:x}")).collect();
            text += &format!("reprieve samples {}\r\n", words.join(" "));
        }
        text + &format!("reprieve end {} {hash:016x}\r\n[    9.9] reboot: System halted\r\n", samples.len())
    }

    #[test]
    fn samples_add_up_to_their_times() {
        let twice = log(&[(100, 5), (0x2000, 0xff), (1, 0)]) + &log(&[(7, 8)]);
        let reports = Report::parse(twice.as_bytes(), 2).unwrap();
        let report = &reports[0];
        assert_eq!((report.mono_ns, report.tsc, report.window_ns()), ([1000, 5000], [7, 9], 4000));
        assert_eq!(reports[1].samples, [Sample { woken_ns: 7, late_ns: 8 }]);
        let times: Vec<(u64, u64)> = report.samples.iter().map(|s| (s.woken_ns, s.late_ns)).collect();
        assert_eq!(times, [(100, 5), (0x2064, 0xff), (0x2065, 0)]);
    }

    #[test]
    fn a_log_that_is_not_whole_is_refused_with_its_last_lines() {
        let whole = log(&[(1, 2), (3, 4), (5, 6)]);
        let error = |log: &str| Report::parse(log.as_bytes(), 1).unwrap_err().to_string();
        for line in whole.lines().filter(|line| line.starts_with(MARK)) {
            let lost = whole.replace(&format!("{line}\r\n"), "");
            assert!(error(&lost).contains("System halted"), "without {line}");
        }
        assert!(error(&whole.replace("3:4", "3:5")).contains("its last line says"));
        assert!(error(&whole.replace("3:4", "3")).contains("two numbers"));
        assert!(error("reprieve failed memory\n").contains("failed: memory"));
        assert!(error("Kernel panic\n").contains("0 of 1 segments before it ended"));
    }
}
