//! Attributes each stall to the mechanism that caused it, from the events of Xen's schedulers.
//!
//! A *wait* is a stretch during which the vCPU is runnable without a pCPU. A stall is attributed to the longest wait
//! within it. A stall without a wait is a request that queued behind others; it is attributed to the last wait before
//! it, if the vCPU has been busy since. A wait has the mechanism of the first rule that matches:
//!
//! | mechanism | rule |
//! |---|---|
//! | inactive, then OVER | during the wait the vCPU was OVER for an unseen debt: it joined the active list with negative credit, and the next accounting, within a slice, found the debt. This lasts until an accounting finds it UNDER |
//! | boosted hog | its wake was refused because the current vCPU has BOOST from its own migration |
//! | BOOST erased | accounting took its BOOST during the wait, and afterwards its wake was refused |
//! | rate limit | a wake was refused, or a decision on the pCPU that it got was put off, only because the current vCPU had not run for the rate limit |
//! | slice end | for any other reason its wake was refused, it lost its pCPU, or a decision chose another vCPU. Others had an equal or better claim, so it waited for the end of a slice, a budget or a cap |
//! | other | no event of the scheduler explains the wait |
//!
//! A busy vCPU that is OVER because it used its share therefore waits for *slice end*: that is the scheduler's job.

use std::collections::BTreeMap;

use reprieve_study::{Span, metric};

use crate::sched::xen::{Event, Kind, Priority, Refusal};
use crate::sched::{Cpu, Entity};

/// What caused a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// credit, bug 2.
    InactiveOver,
    /// credit, bug 1.
    HogBoosted,
    /// credit, bug 3.
    BoostErased,
    /// credit and credit2.
    RateLimit,
    /// Others had an equal or better claim.
    SliceEnd,
    /// No event explains it.
    Other,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Mechanism; 6] = [
        Mechanism::HogBoosted,
        Mechanism::InactiveOver,
        Mechanism::BoostErased,
        Mechanism::RateLimit,
        Mechanism::SliceEnd,
        Mechanism::Other,
    ];

    /// The metric that counts these stalls, and their name in reports.
    pub fn metric_and_label(self) -> (&'static str, &'static str) {
        match self {
            Mechanism::HogBoosted => (metric::LATE_HOG_BOOSTED, "boosted hog"),
            Mechanism::InactiveOver => (metric::LATE_INACTIVE_OVER, "inactive, then OVER"),
            Mechanism::BoostErased => (metric::LATE_BOOST_ERASED, "BOOST erased"),
            Mechanism::RateLimit => (metric::LATE_RATE_LIMIT, "rate limit"),
            Mechanism::SliceEnd => (metric::LATE_SLICE_END, "slice end"),
            Mechanism::Other => (metric::LATE_OTHER, "other"),
        }
    }
}

/// Shorter waits are ignored: they make no stall.
const LEAST_WAIT_NS: u64 = 50_000;

/// What the events of a wait say about its cause.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    over_unseen: bool,
    hog_boosted: bool,
    erased: bool,
    erased_and_refused: bool,
    rate_limit: bool,
    refused: bool,
    passed_over: bool,
}

impl Signs {
    fn mechanism(self, preempted: bool) -> Mechanism {
        match () {
            () if self.over_unseen => Mechanism::InactiveOver,
            () if self.hog_boosted => Mechanism::HogBoosted,
            () if self.erased_and_refused => Mechanism::BoostErased,
            () if self.rate_limit && !self.refused && !preempted => Mechanism::RateLimit,
            () if self.refused || preempted || self.passed_over => Mechanism::SliceEnd,
            () => Mechanism::Other,
        }
    }
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug)]
struct Wait {
    span: Span,
    mechanism: Mechanism,
    /// When the vCPU first went idle after the wait.
    busy_until_ns: Option<u64>,
}

impl Wait {
    /// Whether the vCPU has been busy from the end of this wait until then.
    fn is_busy_at(&self, at_ns: u64) -> bool {
        self.busy_until_ns.is_none_or(|until_ns| at_ns <= until_ns)
    }
}

/// Follows the waits of one vCPU through the events of its scheduler.
#[derive(Debug)]
pub struct Waits {
    /// The vCPU that is followed.
    pub entity: Entity,
    slice_ns: u64,
    /// Entities that have BOOST from their own migration, and their pCPU.
    boosted_by_migration: BTreeMap<Entity, Cpu>,
    /// When the vCPU joined the active list with negative credit.
    joined_in_debt_ns: Option<u64>,
    over_unseen: bool,
    /// The waits of at least [`LEAST_WAIT_NS`], in order.
    waits: Vec<Wait>,
}

impl Waits {
    /// Memory of the waits.
    pub fn held_bytes(&self) -> usize {
        self.waits.len() * size_of::<Wait>()
    }

    /// Follows that vCPU, under a scheduler with slices of that length.
    pub fn of(entity: Entity, slice_ns: u64) -> Waits {
        Waits {
            entity,
            slice_ns,
            boosted_by_migration: BTreeMap::new(),
            joined_in_debt_ns: None,
            over_unseen: false,
            waits: Vec::new(),
        }
    }

    /// The vCPU's wait ends: it gets `cpu`. `events` are all events since the last call, in order. `preempted` says
    /// that the vCPU lost its last pCPU while it still had work.
    pub fn end(&mut self, events: &[Event], wait: Span, preempted: bool, cpu: Cpu) {
        let before = events.partition_point(|event| event.at_ns < wait.start_ns);
        events[..before].iter().for_each(|event| self.follow(event));
        let mut signs = Signs { over_unseen: self.over_unseen, ..Signs::default() };
        for event in &events[before..] {
            self.follow(event);
            signs.over_unseen |= self.over_unseen;
            self.read(event, cpu, &mut signs);
        }
        if wait.length_ns() >= LEAST_WAIT_NS {
            let mechanism = signs.mechanism(preempted);
            self.waits.push(Wait { span: wait, mechanism, busy_until_ns: None });
        }
    }

    /// The vCPU goes idle.
    pub fn idle(&mut self, now_ns: u64) {
        if let Some(last) = self.waits.last_mut() {
            last.busy_until_ns.get_or_insert(now_ns);
        }
    }

    /// Tracks state that outlasts a wait.
    fn follow(&mut self, event: &Event) {
        let own = event.entity == self.entity;
        match event.kind {
            Kind::JoinedActive { credit } if own => {
                self.joined_in_debt_ns = (credit < 0).then_some(event.at_ns);
            }
            Kind::WentOver if own => {
                let since_ns = self.joined_in_debt_ns.take();
                self.over_unseen = since_ns.is_some_and(|since_ns| event.at_ns - since_ns <= self.slice_ns);
            }
            Kind::WentUnder if own => self.over_unseen = false,
            Kind::BoostedByMigration => drop(self.boosted_by_migration.insert(event.entity, event.cpu)),
            Kind::BoostEnded | Kind::BoostErased => drop(self.boosted_by_migration.remove(&event.entity)),
            _ => {}
        }
    }

    /// Reads the evidence in an event of a wait that ended on `cpu`.
    fn read(&self, event: &Event, cpu: Cpu, signs: &mut Signs) {
        let own = event.entity == self.entity;
        match event.kind {
            Kind::RateLimited if !own && event.cpu == cpu => signs.rate_limit = true,
            Kind::BoostErased if own => signs.erased = true,
            Kind::TickleRefused(Refusal::RateLimit) if own => signs.rate_limit = true,
            Kind::TickleRefused(refusal) if own => {
                let by_boost = matches!(refusal, Refusal::NotHigher { current: Priority::Boost, .. });
                let there = |(other, cpu): (&Entity, &Cpu)| *other != self.entity && *cpu == event.cpu;
                signs.hog_boosted |= by_boost && self.boosted_by_migration.iter().any(there);
                signs.erased_and_refused |= signs.erased;
                signs.refused = true;
            }
            Kind::Parked if own => signs.refused = true,
            Kind::Runs | Kind::GoesOn if !own && event.cpu == cpu => signs.passed_over = true,
            _ => {}
        }
    }

    /// The mechanism of a stall.
    pub fn why(&self, stall: Span) -> Mechanism {
        let first = self.waits.partition_point(|wait| wait.span.end_ns <= stall.start_ns);
        let within = self.waits[first..].iter().map_while(|wait| {
            (wait.span.start_ns < stall.end_ns).then(|| (wait.span.overlap(stall), wait.mechanism))
        });
        let longest = within.filter_map(|(part, mechanism)| Some((part?.length_ns(), mechanism))).max();
        let before = || self.waits[..first].last().filter(|wait| wait.is_busy_at(stall.start_ns));
        longest
            .map(|(_, mechanism)| mechanism)
            .or_else(|| Some(before()?.mechanism))
            .unwrap_or(Mechanism::Other)
    }
}

#[cfg(test)]
mod tests;
