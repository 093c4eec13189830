//! The scheduler's events in the words in which stalls are told. Those that no stall needs, of load and of each look at a
//! queue, are left out.

use reprieve_study::stalls::{Decision, GUEST, SPINNER};

use super::decisions::{EVENTS, Says};
use super::intervals::IDLE_DOMAIN;
use super::records::Record;

/// dom0's number.
const DOM0: u32 = 0;

/// The events of these records that are told, in the order of time. `ns` gives the time of a counter's value, if it is in
/// the window; `guest` is the number of the guest's domain.
pub fn decisions(records: &[Record], ns: impl Fn(u64) -> Option<u64>, guest: u32) -> Vec<Decision> {
    records.iter().filter_map(|record| decision(record, ns(record.tsc)?, guest)).collect()
}

fn decision(record: &Record, t_ns: u64, guest: u32) -> Option<Decision> {
    let (_, _, says, what) = EVENTS.iter().find(|(event, ..)| *event == record.event)?;
    let domain = match (says, record.words()) {
        (Says::Vcpu, [domain, ..]) | (Says::TwoVcpus, [_, _, domain, ..]) => *domain,
        // Of a tickle this is of a pCPU, and is not said.
        (Says::Packed | Says::Numbers, [packed, ..]) => packed >> 16,
        _ => return None,
    };
    let who = match domain {
        domain if domain == u32::from(IDLE_DOMAIN) => return None,
        domain if domain == guest => GUEST,
        DOM0 => "dom0",
        _ => SPINNER,
    };
    Some(Decision { t_ns, what: (*what)?, who: who.into(), note: note(record) })
}

/// Run times, in which the reader sees slices and the rate limit.
fn note(record: &Record) -> String {
    let us = |ns: u32| format!("ran for {} us", ns / 1_000);
    match (record.event, record.words()) {
        (0x28011, [_, _, ran_ns, ..]) | (0x2200a | 0x22216, [_, ran_ns, ..]) => us(*ran_ns),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_of_whom_they_are_about() {
        let records = [
            Record::of(10, 0, 0x28004, &[2, 0]),
            Record::of(20, 0, 0x22009, &[]),
            Record::of(30, 0, 0x2200a, &[1 << 16, 96_300]),
            Record::of(40, 0, 0x2800a, &[1, 0, 2, 0]),
            Record::of(50, 0, 0x2800a, &[2, 0, 0x7fff, 0]),
            Record::of(60, 0, 0x28004, &[0, 0]),
        ];
        let decisions = decisions(&records, |tsc| (tsc < 60).then_some(tsc * 2), 2);
        let texts: Vec<(u64, String, &str)> =
            decisions.iter().map(|one| (one.t_ns, one.what.of(&one.who), one.note.as_str())).collect();
        let expected = [
            (20, "guest wakes", ""),
            (60, "rate limit holds: spinner goes on", "ran for 96 us"),
            (80, "guest gets the pCPU", ""),
        ];
        assert_eq!(texts, expected.map(|(t_ns, what, note)| (t_ns, what.to_string(), note)));
    }
}
