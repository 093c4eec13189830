//! Translates events of Xen's schedulers into the decisions that a report of a stall lists.

use reprieve_study::stalls::{Decision, GUEST, SPINNER, What};

use crate::sched::Entity;
use crate::sched::xen::{Event, Kind};

/// Translates one event. A thread that is neither the guest nor a spinner belongs to dom0.
pub fn decision(event: &Event, guest: Entity, spinners: &[Entity]) -> Decision {
    let who = match event.entity {
        entity if entity == guest => GUEST,
        entity if spinners.contains(&entity) => SPINNER,
        _ => "dom0",
    };
    let (what, note) = what(event.kind);
    let (who, note) = match what {
        What::Inside => (format!("{who} {note}"), String::new()),
        _ => (who.to_string(), note),
    };
    Decision { t_ns: event.at_ns, what, who, note }
}

fn what(kind: Kind) -> (What, String) {
    let inside = |note: &str| (What::Inside, note.to_string());
    let plain = |what| (what, String::new());
    match kind {
        Kind::Woken => plain(What::Wakes),
        Kind::Blocked => plain(What::Blocks),
        Kind::Runs => plain(What::Runs),
        Kind::GoesOn => plain(What::GoesOn),
        Kind::RateLimited => plain(What::RateLimitHolds),
        Kind::Tickled => plain(What::Preempts),
        Kind::Boosted => plain(What::BoostStarts),
        Kind::BoostEnded => plain(What::BoostEnds),
        Kind::Sampled => plain(What::TickFinds),
        Kind::JoinedActive { credit } => (What::BecomesActive, format!("credit {credit}")),
        Kind::LeftActive => plain(What::BecomesInactive),
        Kind::CreditReset => plain(What::NewCredit),
        Kind::BoostedByMigration => inside("gets BOOST by its own migration"),
        Kind::BoostErased => inside("loses BOOST: accounting writes its priority"),
        Kind::TickleRefused(why) => inside(&format!("does not preempt: {why:?}")),
        Kind::WentOver => inside("is OVER"),
        Kind::WentUnder => inside("is UNDER"),
        Kind::SliceEnd => inside("is at its slice's end"),
        Kind::Parked => inside("is parked"),
        Kind::Unparked => inside("is not parked any more"),
        Kind::Stolen => inside("is stolen"),
        Kind::MigratedMark => inside("is to leave its pCPU"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Cpu;

    #[test]
    fn who_and_what_are_said_in_common_words_and_what_only_we_know_in_brackets() {
        let of = |entity: u32, kind: Kind| {
            let event = Event { at_ns: 7, cpu: Cpu(0), entity: Entity(entity), kind };
            let decision = decision(&event, Entity(1), &[Entity(2)]);
            (decision.what.of(&decision.who), decision.note)
        };
        assert_eq!(of(1, Kind::Woken), ("guest wakes".into(), String::new()));
        assert_eq!(of(2, Kind::GoesOn), ("spinner goes on".into(), String::new()));
        let (what, note) = of(1, Kind::JoinedActive { credit: -339 });
        assert_eq!((what.as_str(), note.as_str()), ("guest becomes active: a tick finds it", "credit -339"));
        assert_eq!(of(0, Kind::WentOver).0, "(dom0 is OVER)");
    }
}
