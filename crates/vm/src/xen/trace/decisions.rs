//! The scheduler's decisions, with their names and what they say: for a trace viewer, event by event.

use reprieve_study::stalls::What;

use super::records::Record;

/// One event of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The pCPU's time stamp counter.
    pub tsc: u64,
    /// On which pCPU it was taken.
    pub pcpu: u32,
    /// What happened, for people.
    pub text: String,
}

/// What the words of an event are.
pub(super) enum Says {
    /// Nothing that is shown.
    Nothing,
    /// A domain and its vCPU; further words are numbers.
    Vcpu,
    /// The two of them in one word, the domain in the upper half; further words are numbers.
    Packed,
    /// The vCPU that is left, and the one that is taken.
    TwoVcpus,
    /// Numbers.
    Numbers,
}

/// Events that are shown: number, name, words, and what they are in a stall, of those that a stall needs. Changes of run states are intervals, and left out here; so are credit2's
/// events of load, and its look at each one that waits.
///
/// credit2's numbers are those of Xen 4.17; the formats file of later versions has those from 0x22213 on one lower. They were
/// held against a trace of the packaged 4.17.7: 0x22215 (a pCPU, its flags) comes at each decision, and 0x22214 (the vCPU,
/// the pCPU that was tickled for it, its credit) right after it names the vCPU that the switch then takes; 0x22216 (the vCPU,
/// its run time in ns, below the rate limit) comes where the same vCPU goes on; 0x22207 (the vCPU, its credit before and
/// after) comes where a candidate had none left; 0x2220d (the vCPU, its pCPU, its credit) after each wake.
pub(super) const EVENTS: [(u32, &str, Says, Option<What>); 28] = [
    (0x22001, "credit: tasklet", Says::Nothing, None),
    (0x22002, "credit: becomes active", Says::Vcpu, Some(What::BecomesActive)),
    (0x22003, "credit: becomes inactive", Says::Vcpu, Some(What::BecomesInactive)),
    (0x22004, "credit: stolen", Says::Vcpu, None),
    (0x22005, "credit: picked pCPU", Says::Vcpu, Some(What::TickFinds)),
    (0x22006, "credit: tickles pCPU", Says::Numbers, Some(What::Preempts)),
    (0x22007, "credit: boost starts", Says::Vcpu, Some(What::BoostStarts)),
    (0x22008, "credit: boost ends", Says::Vcpu, Some(What::BoostEnds)),
    (0x22009, "credit: schedules", Says::Nothing, None),
    (0x2200a, "credit: rate limit holds", Says::Packed, Some(What::RateLimitHolds)),
    (0x2200b, "credit: looks for work elsewhere", Says::Nothing, None),
    (0x22202, "credit2: place in the runqueue", Says::Packed, None),
    (0x22203, "credit2: burns credit", Says::Packed, None),
    (0x22205, "credit2: may it preempt", Says::Packed, None),
    (0x22206, "credit2: tickles pCPU", Says::Numbers, Some(What::Preempts)),
    (0x22207, "credit2: resets credit", Says::Packed, Some(What::NewCredit)),
    (0x2220d, "credit2: looks whom to preempt", Says::Packed, None),
    (0x22213, "credit2: picked pCPU", Says::Packed, None),
    (0x22214, "credit2: candidate", Says::Packed, None),
    (0x22215, "credit2: schedules", Says::Nothing, None),
    (0x22216, "credit2: rate limit holds", Says::Packed, Some(What::RateLimitHolds)),
    (0x28003, "sleeps", Says::Vcpu, Some(What::Blocks)),
    (0x28004, "wakes", Says::Vcpu, Some(What::Wakes)),
    (0x28005, "yields", Says::Vcpu, None),
    (0x28006, "blocks", Says::Vcpu, Some(What::Blocks)),
    (0x28007, "shuts down", Says::Vcpu, Some(What::Blocks)),
    (0x2800a, "switches", Says::TwoVcpus, Some(What::Runs)),
    (0x28011, "goes on", Says::Vcpu, Some(What::GoesOn)),
];

/// The decisions within a window of the records' times.
pub fn decisions(records: &[Record], start: u64, end: u64) -> Vec<Decision> {
    let within = records.iter().filter(|record| (start..=end).contains(&record.tsc));
    within.filter_map(decision).collect()
}

fn decision(record: &Record) -> Option<Decision> {
    let (_, name, says, _) = EVENTS.iter().find(|(event, ..)| *event == record.event)?;
    let said = said(says, record.words());
    let text = if said.is_empty() { (*name).to_string() } else { format!("{name}: {said}") };
    Some(Decision { tsc: record.tsc, pcpu: record.pcpu, text })
}

fn said(says: &Says, words: &[u32]) -> String {
    let with = |head: String, rest: &[u32]| {
        let numbers = rest.iter().map(|word| format!(" {}", *word as i32));
        [head].into_iter().chain(numbers).collect::<String>()
    };
    match (says, words) {
        (Says::Vcpu, [domain, vcpu, rest @ ..]) => with(vcpu_name(*domain, *vcpu), rest),
        (Says::Packed, [packed, rest @ ..]) => with(vcpu_name(packed >> 16, packed & 0xffff), rest),
        (Says::TwoVcpus, [from, from_vcpu, to, to_vcpu, ..]) => {
            format!("{} to {}", vcpu_name(*from, *from_vcpu), vcpu_name(*to, *to_vcpu))
        }
        (Says::Nothing, _) => String::new(),
        (_, words) => with(String::new(), words).trim_start().to_string(),
    }
}

fn vcpu_name(domain: u32, vcpu: u32) -> String {
    match domain {
        0x7fff => "idle".to_string(),
        _ => format!("d{domain}v{vcpu}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_named_and_cut_to_the_window() {
        let records = [
            Record::of(1, 0, 0x28004, &[1, 0]),
            Record::of(5, 1, 0x2800a, &[1, 0, 0x7fff, 1]),
            Record::of(6, 1, 0x2200a, &[2 << 16 | 1, 500]),
            Record::of(7, 1, 0x22006, &[1]),
            Record::of(8, 1, 0x22009, &[3]),
            Record::of(8, 1, 0x21021, &[3]),
            Record::of(9, 1, 0x28004, &[1]),
        ];
        let texts: Vec<String> = decisions(&records, 5, 9).into_iter().map(|one| one.text).collect();
        assert_eq!(
            texts,
            [
                "switches: d1v0 to idle",
                "credit: rate limit holds: d2v1 500",
                "credit: tickles pCPU: 1",
                "credit: schedules",
                "wakes: 1",
            ]
        );
    }

    #[test]
    fn each_event_has_one_name() {
        assert!(EVENTS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
