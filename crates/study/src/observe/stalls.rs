//! Stalls, event by event. Real Xen's trace and the simulator's use the same words, so that they can be compared.
//!
//! A few stalls of different lengths are kept of each run. Each has the scheduler's decisions from shortly before it
//! to shortly after it, and the last time at which the guest joined or left the active list. Times count from when
//! the task wanted to run.

use serde::{Deserialize, Serialize};

use crate::observe::grace_period::Span;
use crate::units::SECOND_NS;

/// Most stalls that are kept of a run.
const STALLS_MAX: usize = 6;
/// Of two stalls whose lengths differ by less than this share of the longer one, only one is kept.
const ALIKE: f64 = 0.2;
/// Events are kept from this long before a stall to this long after it.
const BEFORE_NS: u64 = 2_000_000;
const AFTER_NS: u64 = 500_000;
/// The last change of a lasting state is kept from this long before a stall.
const LASTING_NS: u64 = SECOND_NS;

/// One stall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// How late the task ran.
    pub length_ns: u64,
    /// Its cause, where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The scheduler's decisions, in the order of time.
    pub events: Vec<StallEvent>,
}

/// A decision of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallEvent {
    /// Time from when the task wanted to run; negative before that.
    pub t_ns: i64,
    /// What happened, in the words of [`What`]. Comparisons use this alone.
    pub what: String,
    /// Further details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What a scheduler does, in common words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Something happened that the vCPU waited for.
    Wakes,
    /// It has nothing to do.
    Blocks,
    /// It gets the pCPU.
    Runs,
    /// A decision leaves it the pCPU.
    GoesOn,
    /// The rate limit leaves it the pCPU.
    RateLimitHolds,
    /// The pCPU is interrupted for it.
    Preempts,
    /// credit: a wake made it BOOST.
    BoostStarts,
    /// credit: a tick found it and took its BOOST.
    BoostEnds,
    /// credit: a tick found it running.
    TickFinds,
    /// credit: a tick found it running, and it joins the active list.
    BecomesActive,
    /// credit: it leaves the active list.
    BecomesInactive,
    /// credit2: it gets new credit.
    NewCredit,
    /// An event that only the simulator knows; the note describes it.
    Inside,
}

impl What {
    /// As people read it.
    pub fn of(self, who: &str) -> String {
        match self {
            What::Wakes => format!("{who} wakes"),
            What::Blocks => format!("{who} blocks"),
            What::Runs => format!("{who} gets the pCPU"),
            What::GoesOn => format!("{who} goes on"),
            What::RateLimitHolds => format!("rate limit holds: {who} goes on"),
            What::Preempts => "the pCPU is interrupted".into(),
            What::BoostStarts => format!("{who} gets BOOST"),
            What::BoostEnds => format!("{who} loses BOOST: a tick finds it"),
            What::TickFinds => format!("a tick finds {who}"),
            What::BecomesActive => format!("{who} becomes active: a tick finds it"),
            What::BecomesInactive => format!("{who} becomes inactive"),
            What::NewCredit => format!("{who} gets new credit"),
            What::Inside => format!("({who})"),
        }
    }

    /// Whether it changes a state that lasts.
    fn lasts(self) -> bool {
        matches!(self, What::BecomesActive | What::BecomesInactive)
    }
}

/// The guest under test, in the words of [`What::of`].
pub const GUEST: &str = "guest";
/// A VM that computes.
pub const SPINNER: &str = "spinner";

/// An event of the scheduler as a ground knows it: when, what, which vCPU, and a note. Times are from the same clock
/// as those of the stalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Time, in ns.
    pub t_ns: u64,
    /// What.
    pub what: What,
    /// Who.
    pub who: String,
    /// What else is known.
    pub note: String,
}

/// Chooses the stalls to keep, longest first, and adds their events. Both lists are in the order of time.
pub fn select(stalls: &[(Span, String)], decisions: &[Decision]) -> Vec<Stall> {
    let mut longest: Vec<&(Span, String)> = stalls.iter().collect();
    longest.sort_by_key(|(span, _)| std::cmp::Reverse(span.length_ns()));
    let mut kept: Vec<&(Span, String)> = Vec::new();
    for stall in longest {
        let length = |(span, _): &(Span, String)| span.length_ns() as f64;
        if kept.iter().all(|other| length(stall) < (1.0 - ALIKE) * length(other)) && kept.len() < STALLS_MAX {
            kept.push(stall);
        }
    }
    let with_events = |(span, why): &&(Span, String)| Stall {
        length_ns: span.length_ns(),
        why: why.clone(),
        events: events(*span, decisions),
    };
    kept.iter().map(with_events).collect()
}

fn events(stall: Span, decisions: &[Decision]) -> Vec<StallEvent> {
    let at = |t_ns: u64| decisions.partition_point(|decision| decision.t_ns < t_ns);
    let from = at(stall.start_ns.saturating_sub(BEFORE_NS));
    let earlier = &decisions[at(stall.start_ns.saturating_sub(LASTING_NS))..from];
    let lasting = earlier.iter().rev().filter(|one| one.what.lasts() && one.who == GUEST);
    let mut lasting: Vec<&Decision> = lasting.take(2).collect();
    lasting.reverse();
    let event = |decision: &Decision| StallEvent {
        t_ns: decision.t_ns as i64 - stall.start_ns as i64,
        what: decision.what.of(&decision.who),
        note: decision.note.clone(),
    };
    lasting.into_iter().chain(&decisions[from..at(stall.end_ns + AFTER_NS)]).map(event).collect()
}

/// One event of two stalls beside each other; one of the two may lack it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// In the first.
    pub first: Option<&'a StallEvent>,
    /// In the second.
    pub second: Option<&'a StallEvent>,
}

/// Aligns two stalls event by event: events of their longest common subsequence stand beside each other, and events
/// of only one of them stand in between, in their order. Events before the task wanted to run and events after that
/// are aligned separately.
pub fn beside<'a>(first: &'a Stall, second: &'a Stall) -> Vec<Line<'a>> {
    let at_0 = |stall: &'a Stall| stall.events.split_at(stall.events.partition_point(|event| event.t_ns < 0));
    let ((a_before, a_after), (b_before, b_after)) = (at_0(first), at_0(second));
    let mut lines = common_sequence(a_before, b_before);
    lines.extend(common_sequence(a_after, b_after));
    lines
}

fn common_sequence<'a>(a: &'a [StallEvent], b: &'a [StallEvent]) -> Vec<Line<'a>> {
    // Length of the longest common subsequence of the remaining events.
    let mut common = vec![vec![0u32; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = match a[i].what == b[j].what {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        let both = i < a.len() && j < b.len();
        if both && a[i].what == b[j].what {
            lines.push(Line { first: Some(&a[i]), second: Some(&b[j]) });
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || both && common[i + 1][j] >= common[i][j + 1] {
            lines.push(Line { first: Some(&a[i]), second: None });
            i += 1;
        } else {
            lines.push(Line { first: None, second: Some(&b[j]) });
            j += 1;
        }
    }
    lines
}

/// The stall whose length is nearest to that of another one, by their ratio.
pub fn nearest<'a>(to: &Stall, among: &'a [Stall]) -> Option<&'a Stall> {
    let distance = |stall: &Stall| ((stall.length_ns.max(1) as f64) / to.length_ns.max(1) as f64).ln().abs();
    among.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn decision(t_ms: u64, what: What) -> Decision {
        Decision { t_ns: t_ms * MS, what, who: GUEST.into(), note: String::new() }
    }

    fn stall(from_ms: u64, to_ms: u64) -> (Span, String) {
        (Span::new(from_ms * MS, to_ms * MS), "why".into())
    }

    #[test]
    fn of_stalls_that_are_alike_the_longest_is_kept() {
        let stalls = [stall(0, 30), stall(100, 160), stall(200, 229), stall(300, 359), stall(400, 402)];
        let lengths: Vec<u64> = select(&stalls, &[]).iter().map(|one| one.length_ns / MS).collect();
        assert_eq!(lengths, [60, 30, 2]);
    }

    #[test]
    fn a_stall_has_the_events_around_it_and_the_state_before() {
        let decisions = [
            decision(500, What::BecomesActive),
            decision(600, What::BecomesInactive),
            decision(700, What::BecomesActive),
            decision(800, What::Wakes),
            decision(1_198, What::Blocks),
            decision(1_200, What::Wakes),
            decision(1_230, What::Runs),
            decision(1_232, What::Blocks),
        ];
        let kept = &select(&[stall(1_200, 1_230)], &decisions)[0];
        let events: Vec<(i64, &str)> =
            kept.events.iter().map(|event| (event.t_ns / MS as i64, event.what.as_str())).collect();
        let expected = [
            (-600, "guest becomes inactive"),
            (-500, "guest becomes active: a tick finds it"),
            (-2, "guest blocks"),
            (0, "guest wakes"),
            (30, "guest gets the pCPU"),
        ];
        assert_eq!((events.as_slice(), kept.why.as_str()), (&expected[..], "why"));
    }

    #[test]
    fn what_is_common_stands_beside_each_other() {
        let of = |whats: &[What]| Stall {
            length_ns: 1,
            why: String::new(),
            events: whats
                .iter()
                .map(|what| StallEvent { t_ns: 0, what: what.of("x"), note: String::new() })
                .collect(),
        };
        let [first, second] = [
            of(&[What::Wakes, What::TickFinds, What::GoesOn, What::Runs]),
            of(&[What::Wakes, What::GoesOn, What::BoostEnds, What::Runs]),
        ];
        let sides: Vec<(bool, bool)> = beside(&first, &second)
            .iter()
            .map(|line| (line.first.is_some(), line.second.is_some()))
            .collect();
        assert_eq!(sides, [(true, true), (true, false), (true, true), (false, true), (true, true)]);
    }

    #[test]
    fn what_was_before_is_not_beside_what_was_after() {
        let of = |t_ns: i64| Stall {
            length_ns: 1,
            why: String::new(),
            events: vec![StallEvent { t_ns, what: What::Wakes.of("x"), note: String::new() }],
        };
        let (before, after) = (of(-5), of(5));
        assert_eq!(beside(&before, &after).len(), 2);
        assert_eq!(beside(&after, &after).len(), 1);
    }

    #[test]
    fn the_nearest_is_so_by_ratio() {
        let of = |length_ns| Stall { length_ns, why: String::new(), events: Vec::new() };
        let among = [of(1_000), of(30_000), of(90_000)];
        assert_eq!(nearest(&of(59_000), &among).unwrap().length_ns, 90_000);
        assert_eq!(nearest(&of(5_000), &among).unwrap().length_ns, 1_000);
        assert_eq!(nearest(&of(1), &[]), None);
    }
}
