//! What the daemon's record tells of a window, and whether a replay decides the same; and what it said meanwhile.

use reprieve_linux::migrate::{self, Replayed};
use reprieve_policy::signal::Signal;
use reprieve_study::Span;
use reprieve_study::units::MILLISECOND_NS;
use serde_json::Value;

/// A beat later than this is late, ns: below lies what emulation does to an undisturbed guest.
const LATE_NS: u64 = 5 * MILLISECOND_NS;
/// How a record marks a decision.
const DECISION: &str = "> ";

/// What a record tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Decisions of the window.
    pub moves: u64,
    /// Beats of the window that were late.
    pub late_beats: u64,
    /// What the replay of the whole record came to.
    pub replayed: Replayed,
}

/// Reads and replays a record; `window` is of the guest's clock.
///
/// # Errors
/// A line that is none of a record.
pub fn read(record: &[u8], window: Span) -> Result<Recorded, String> {
    let replayed = migrate::replay(record, |_| ()).map_err(|error| error.to_string())?;
    let mut recorded = Recorded { replayed, ..Recorded::default() };
    let (mut at_ns, text) = (0, String::from_utf8_lossy(record));
    // Header and settings are no signals.
    for line in text.lines().skip(2) {
        let is_within = |at_ns: u64| window.start_ns <= at_ns && at_ns < window.end_ns;
        match line.parse() {
            Ok(Signal::Beat(beat)) => {
                at_ns = beat.at_ns;
                recorded.late_beats += u64::from(is_within(at_ns) && beat.lateness_ns() > LATE_NS);
            }
            // What is told to an oracle is yet to come.
            Ok(Signal::NextOff { .. }) => {}
            Ok(signal) => at_ns = signal.at_ns(),
            Err(_) => recorded.moves += u64::from(line.starts_with(DECISION) && is_within(at_ns)),
        }
    }
    Ok(recorded)
}

/// Most notes of one run.
const NOTES: usize = 8;

/// What the daemon said, in JSON, that whoever reads the figures should know: what tells it I/O tasks, and its warnings.
pub fn notes(said: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(said);
    let note = |line: &str| -> Option<String> {
        let event: Value = serde_json::from_str(line).ok()?;
        match event.get("event")?.as_str()? {
            "began" => Some(format!("daemon: I/O tasks are told by {}", event.get("source")?.as_str()?)),
            "warning" => Some(format!("daemon: {}", event.get("text")?.as_str()?)),
            "advice" => Some(format!("daemon: advice {}", event.get("advice")?.as_str()?)),
            _ => None,
        }
    };
    text.lines().filter_map(note).take(NOTES).collect()
}

#[cfg(test)]
mod tests {
    use reprieve_linux::migrate::{Decision, Entry, write_entry, write_header};
    use reprieve_policy::place::{Placer, Policy, Settings};

    use super::*;

    const MS: u64 = MILLISECOND_NS;

    /// Two vCPUs that are off in turns, 25 of 60 ms, and a task that always waits for I/O, pulled.
    fn record() -> Vec<u8> {
        let settings = Settings::new(2, 4).with(Policy::Pull);
        let (mut placer, mut record) = (Placer::new(settings), Vec::new());
        write_header(&mut record, &settings).unwrap();
        let mut signals: Vec<Signal> =
            vec!["admit 0 0 0-1 0 0".parse().unwrap(), "io-begin 0 0".parse().unwrap()];
        for ms in 0..3000u64 {
            for vcpu in 0..2 {
                let phase = (ms + 60 - 30 * vcpu) % 60;
                let due = if phase == 25 { ms.saturating_sub(25) } else { ms };
                let beat = format!("beat {} {vcpu} {} {MS} - -", ms * MS, due * MS);
                signals.extend((phase >= 25).then(|| beat.parse::<Signal>().unwrap()));
            }
        }
        for signal in signals {
            write_entry(&mut record, &Entry::Signal(signal)).unwrap();
            for made in placer.take(&signal) {
                let decision = Decision { at_ns: 0, made: *made, left_here_ns: None, left_there_ns: None };
                write_entry(&mut record, &Entry::Decision(decision)).unwrap();
            }
        }
        record
    }

    #[test]
    fn late_beats_and_moves_are_of_the_window_and_the_replay_of_all() {
        let record = record();
        let all = read(&record, Span::new(0, u64::MAX)).unwrap();
        // The first time off of vCPU 0 has no beat before it, nor has the last of all one after it.
        assert!((98..=100).contains(&all.late_beats), "{all:?}");
        assert!(all.moves > 40 && all.moves == all.replayed.decisions, "{all:?}");
        assert_eq!(all.replayed.differs, None);
        let part = read(&record, Span::new(1500 * MS, 2100 * MS)).unwrap();
        assert!((19..=20).contains(&part.late_beats), "{part:?}");
        assert!(part.moves > 0 && part.moves < all.moves / 2, "{part:?}");
        assert_eq!(part.replayed, all.replayed);
    }

    #[test]
    fn what_the_daemon_warned_of_is_noted() {
        let said = concat!(
            "{\"event\":\"began\",\"vcpus\":2,\"source\":\"delay accounting\"}\nno JSON\n",
            "{\"event\":\"warning\",\"text\":\"memory is not locked\"}\n{\"event\":\"ended\",\"moves\":3}\n{\"ev",
        );
        assert_eq!(
            notes(said.as_bytes()),
            ["daemon: I/O tasks are told by delay accounting", "daemon: memory is not locked"]
        );
    }

    #[test]
    fn another_decision_than_the_recorded_one_is_oracle() {
        let text = String::from_utf8(record()).unwrap();
        let decision = text.lines().find(|line| line.starts_with(DECISION)).unwrap();
        let other = text.replacen(decision, "> move 0 0 home release", 1);
        assert!(read(other.as_bytes(), Span::new(0, 1)).unwrap().replayed.differs.is_some());
        assert!(read(b"nonsense", Span::new(0, 1)).is_err());
    }
}
