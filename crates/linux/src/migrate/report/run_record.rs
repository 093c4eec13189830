//! The record of a run: settings, signals and decisions, one line each; and its replay.
//!
//! ```text
//! reprieve-migrate 1
//! settings 2 256 combined 1000000 500 100 300000000 10 200 20000 100
//! admit 1000 0 0-1 - 0
//! beat 2000000 0 2000000 1000000 - 0
//! > move 0 0 1 ahead
//! ```
//! A line `> move` is a decision on the signal above it. The replay passes the signals to the policy, which must make
//! the same decisions; it reports the first line that differs. A line `lost N` means that the recorder fell behind: the
//! replay compares nothing after it.

use std::io::{BufRead, Write};

use reprieve_policy::io::IoSettings;
use reprieve_policy::place::{Placer, Policy, Settings};
use reprieve_policy::signal::Signal;

use crate::migrate::link::{Decision, Entry};

/// The first line of a record.
pub const HEADER: &str = "reprieve-migrate 1";
const DECISION: &str = "> ";

/// Writes the header and the settings.
pub fn write_header(out: &mut impl Write, settings: &Settings) -> std::io::Result<()> {
    let Settings { vcpus, tasks, policy, io, act_off_permille, moves_per_s, move_cost_ns, refill_ns_per_kib } =
        settings;
    let IoSettings { period_ns, enter_permille, leave_permille, hold_ns } = io;
    writeln!(
        out,
        "{HEADER}\nsettings {vcpus} {tasks} {} {period_ns} {enter_permille} {leave_permille} {hold_ns} \
         {act_off_permille} {moves_per_s} {move_cost_ns} {refill_ns_per_kib}",
        policy.name()
    )
}

/// Writes one entry.
pub fn write_entry(out: &mut impl Write, entry: &Entry) -> std::io::Result<()> {
    match entry {
        Entry::Signal(signal) => writeln!(out, "{signal}"),
        Entry::Decision(decision) => writeln!(out, "{DECISION}{}", decision.made),
        Entry::Lost(entries) => writeln!(out, "lost {entries}"),
        Entry::Unmanaged { .. } => Ok(()),
    }
}

/// A record that cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadRecord {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of signals replayed.
    pub signals: u64,
    /// Number of decisions made.
    pub decisions: u64,
    /// The first difference from the recorded decisions, with its line and both decisions.
    pub differs: Option<String>,
    /// The line at which the recorder fell behind; nothing after it was compared.
    pub lost_at_line: Option<usize>,
}

/// Replays a record into a new placer, and passes each decision to `tell`.
///
/// # Errors
/// [`BadRecord`] for a line that does not belong into a record.
pub fn replay(input: impl BufRead, mut tell: impl FnMut(&Decision)) -> Result<Replayed, BadRecord> {
    let mut lines = input.lines().enumerate().map(|(i, line)| (i + 1, line));
    let mut next = |expected: &str| match lines.next() {
        Some((line, text)) => {
            text.map_err(|e| BadRecord { line, what: e.to_string() }).map(|text| (line, text))
        }
        None => Err(BadRecord { line: 0, what: format!("the record ends before {expected}") }),
    };
    let (line, header) = next("its header")?;
    if header != HEADER {
        return Err(BadRecord {
            line,
            what: format!("expected {HEADER:?}, a record of `reprieve migrate --record`"),
        });
    }
    let (line, settings) = next("its settings")?;
    let settings =
        read_settings(&settings).ok_or_else(|| BadRecord { line, what: "expected settings".into() })?;
    let mut replay =
        Replay { placer: Placer::new(settings), expected: Vec::new(), sum: Replayed::default(), at: 0 };
    for (line, text) in lines {
        let text = text.map_err(|e| BadRecord { line, what: e.to_string() })?;
        if text.starts_with("lost ") {
            // The lost entries may be the very decisions that are expected here.
            replay.expected.clear();
            replay.sum.lost_at_line = Some(line);
            break;
        }
        match text.strip_prefix(DECISION) {
            Some(decision) => replay.compare(decision, line),
            None => {
                let signal = text.parse().map_err(|e| BadRecord { line, what: format!("{e}") })?;
                replay.take(&signal, line, &mut tell);
            }
        }
    }
    replay.nothing_more();
    Ok(replay.sum)
}

struct Replay {
    placer: Placer,
    /// Decisions on the last signal that were not yet compared, the next one last.
    expected: Vec<String>,
    sum: Replayed,
    at: usize,
}

impl Replay {
    fn take(&mut self, signal: &Signal, line: usize, tell: &mut impl FnMut(&Decision)) {
        self.nothing_more();
        self.at = line;
        self.sum.signals += 1;
        let at_ns = signal.at_ns();
        for made in self.placer.take(signal).to_vec() {
            self.sum.decisions += 1;
            tell(&Decision { at_ns, made, left_here_ns: None, left_there_ns: None });
            self.expected.push(made.to_string());
        }
        self.expected.reverse();
    }

    fn compare(&mut self, recorded: &str, line: usize) {
        let made = self.expected.pop().unwrap_or_else(|| "nothing".into());
        if made != recorded {
            self.differ(line, &made, recorded);
        }
    }

    fn nothing_more(&mut self) {
        if let Some(made) = self.expected.pop() {
            self.differ(self.at, &made, "nothing");
        }
        self.expected.clear();
    }

    fn differ(&mut self, line: usize, made: &str, recorded: &str) {
        let text = || format!("line {line}: the policy decides {made:?}, the record has {recorded:?}");
        self.sum.differs.get_or_insert_with(text);
    }
}

fn read_settings(line: &str) -> Option<Settings> {
    let mut words = line.strip_prefix("settings ")?.split_ascii_whitespace();
    let mut size = || words.next()?.parse::<usize>().ok().filter(|size| *size <= 1 << 16);
    let (vcpus, tasks) = (size()?, size()?);
    let policy = Policy::named(words.next()?)?;
    let mut number = || words.next()?.parse().ok();
    let io = IoSettings {
        period_ns: number()?,
        enter_permille: number()?,
        leave_permille: number()?,
        hold_ns: number()?,
    };
    Some(Settings {
        vcpus,
        tasks,
        policy,
        io,
        act_off_permille: number()?,
        moves_per_s: number()?,
        move_cost_ns: number()?,
        refill_ns_per_kib: number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with decisions: two vCPUs that are off in turn, and a task that always has I/O outstanding.
    fn record() -> String {
        let settings = Settings::new(2, 2);
        let mut text = Vec::new();
        write_header(&mut text, &settings).unwrap();
        let mut placer = Placer::new(settings);
        let mut signals: Vec<Signal> =
            vec!["admit 0 0 0-1 0 0".parse().unwrap(), "io-begin 0 0".parse().unwrap()];
        for ms in 0..1500u64 {
            for vcpu in 0..2 {
                let phase = (ms + 60 - 30 * vcpu) % 60;
                if phase >= 25 {
                    let due = if phase == 25 { ms.saturating_sub(25) } else { ms };
                    signals.push(
                        format!("beat {} {vcpu} {} 1000000 - -", ms * 1_000_000, due * 1_000_000)
                            .parse()
                            .unwrap(),
                    );
                }
            }
        }
        for signal in signals {
            write_entry(&mut text, &Entry::Signal(signal)).unwrap();
            for made in placer.take(&signal) {
                let decision = Decision { at_ns: 0, made: *made, left_here_ns: None, left_there_ns: None };
                write_entry(&mut text, &Entry::Decision(decision)).unwrap();
            }
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_record_gives_the_same_decisions_again() {
        let mut told = 0;
        let replayed = replay(record().as_bytes(), |_| told += 1).unwrap();
        assert!(replayed.decisions > 20 && replayed.decisions == told, "{replayed:?}");
        assert_eq!((replayed.differs, replayed.lost_at_line), (None, None));
    }

    #[test]
    fn a_decision_that_is_missing_added_or_changed_is_reported() {
        let record = record();
        let decision = record.lines().find(|line| line.starts_with(DECISION)).unwrap();
        let cases = [
            record.replacen(&format!("{decision}\n"), "", 1),
            record.replacen(decision, &format!("{decision}\n{decision}"), 1),
            record.replacen(decision, "> move 0 0 home release", 1),
        ];
        for case in cases {
            assert!(replay(case.as_bytes(), |_| ()).unwrap().differs.is_some());
        }
        // A lost decision is no difference.
        let cut = record.replacen(decision, "lost 5", 1);
        let replayed = replay(cut.as_bytes(), |_| ()).unwrap();
        assert!(replayed.lost_at_line.is_some() && replayed.differs.is_none(), "{replayed:?}");
    }

    #[test]
    fn a_line_that_is_no_record_is_refused_with_its_number() {
        let good = "reprieve-migrate 1\nsettings 2 2 combined 1 1 1 1 1 1 1 1\n";
        for (text, line) in [
            ("", 0),
            ("x\n", 1),
            ("reprieve-migrate 1\nx\n", 2),
            ("reprieve-migrate 1\nsettings 99999999 2 combined 1 1 1 1 1 1 1 1\n", 2),
            (&format!("{good}tick 1\nnonsense\n"), 4),
        ] {
            assert_eq!(replay(text.as_bytes(), |_| ()).unwrap_err().line, line, "{text:?}");
        }
    }

    /// A guest may write any number in any place of its record.
    #[test]
    fn a_record_with_wild_numbers_is_replayed_or_refused() {
        let (record, mut state) = (record(), 0x9e37_79b9_7f4a_7c15_u64);
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let wild: Vec<&str> = "0 1 2 63 64 65535 65536 4294967295 1000000000000 9223372036854775807 \
                               9223372036854775808 18446744073709551615 - 0-63"
            .split(' ')
            .collect();
        let lines: Vec<Vec<&str>> = record.lines().map(|line| line.split(' ').collect()).collect();
        let others =
            ["tick 5", "seen 5 0 1", "dismiss 5 1", "io-end 5 0", "io-begin 5 1", "mask 5 0 0", "told 5 0 9"];
        let (mut replayed, mut refused) = (0, 0);
        for round in 0..400 {
            let mut lines = lines.clone();
            lines.truncate(200 + next(800));
            for _ in 0..1 + next(20) {
                let at = 2 + next(lines.len() - 2);
                lines.insert(at, others[next(others.len())].split(' ').collect());
            }
            for _ in 0..1 + next(6) {
                // Every fourth change is in the settings.
                let line = if next(4) == 0 { 1 } else { 2 + next(lines.len() - 2) };
                let word = 1 + next(lines[line].len() - 1);
                lines[line][word] = wild[next(wild.len())];
            }
            let text = lines.iter().map(|words| words.join(" ") + "\n").collect::<String>();
            let began = std::time::Instant::now();
            match replay(text.as_bytes(), |_| ()) {
                Ok(_) => replayed += 1,
                Err(_) => refused += 1,
            }
            assert!(began.elapsed().as_secs() < 60, "round {round}: {:?}", lines[1]);
        }
        assert!(replayed > 50 && refused > 50, "{replayed} replayed, {refused} refused");
    }
}
