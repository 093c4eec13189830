//! Why a vCPU waited: every stall is attributed to the mechanism that made it, from the events of Xen's schedulers.
//!
//! A *wait* is a stretch in which the vCPU could run and had no pCPU. A stall belongs to the longest wait within it; one
//! without any is a request that stood in line behind others, and belongs to the last wait before it, if the vCPU has been
//! busy since. A wait belongs to the first of these that holds:
//!
//! | mechanism | rule |
//! |---|---|
//! | inactive, then OVER | the vCPU was OVER in the wait, for debt made unseen: it joined the active list with negative credit, and the next accounting, within a slice, found it in debt; until an accounting finds it UNDER |
//! | boosted hog | its wake was refused by a BOOST that the other one has from its own migration |
//! | BOOST erased | accounting took its BOOST in the wait, and then its wake was refused |
//! | rate limit | a wake was refused, or a decision put off on the pCPU that it got, because the current vCPU had not run for its rate limit, and nothing else stood in the way |
//! | slice end | its wake was refused, or it lost its pCPU, or a decision took another one, for any other reason: others had the same claim or a better one; it waited until a slice, a budget or a cap let it run |
//! | other | nothing of this: no event of the scheduler explains it |
//!
//! So a vCPU that was OVER for what it used while it was accounted for, as a busy one is, waits for *slice end*: that is
//! what the scheduler is for.

use std::collections::BTreeMap;

use reprieve_study::{Span, metric};

use crate::sched::xen::{Event, Kind, Priority, Refusal};
use crate::sched::{Cpu, Entity};

/// What made a stall.
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
    /// No claim to preempt.
    SliceEnd,
    /// Not known.
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

    /// The metric that counts its stalls.
    pub fn metric(self) -> &'static str {
        match self {
            Mechanism::HogBoosted => metric::LATE_HOG_BOOSTED,
            Mechanism::InactiveOver => metric::LATE_INACTIVE_OVER,
            Mechanism::BoostErased => metric::LATE_BOOST_ERASED,
            Mechanism::RateLimit => metric::LATE_RATE_LIMIT,
            Mechanism::SliceEnd => metric::LATE_SLICE_END,
            Mechanism::Other => metric::LATE_OTHER,
        }
    }

    /// As people read it.
    pub fn label(self) -> &'static str {
        match self {
            Mechanism::HogBoosted => "boosted hog",
            Mechanism::InactiveOver => "inactive, then OVER",
            Mechanism::BoostErased => "BOOST erased",
            Mechanism::RateLimit => "rate limit",
            Mechanism::SliceEnd => "slice end",
            Mechanism::Other => "other",
        }
    }
}

/// A wait that is shorter makes no stall, and is forgotten.
const LEAST_WAIT_NS: u64 = 50_000;

/// What the events within a wait say about it.
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

/// A wait that is over.
#[derive(Clone, Copy, Debug)]
struct Wait {
    span: Span,
    mechanism: Mechanism,
    /// When the vCPU had nothing more to do after it, if it has been so.
    busy_until_ns: Option<u64>,
}

impl Wait {
    /// Whether the vCPU, after this wait, has been busy up to then.
    fn is_busy_at(&self, at_ns: u64) -> bool {
        self.busy_until_ns.is_none_or(|until_ns| at_ns <= until_ns)
    }
}

/// Follows one vCPU and those that it competes with.
#[derive(Debug)]
pub struct Waits {
    entity: Entity,
    slice_ns: u64,
    /// Entities that have BOOST by their own migration, and where.
    boosted_by_migration: BTreeMap<Entity, Cpu>,
    /// When the vCPU joined the active list with negative credit.
    joined_in_debt_ns: Option<u64>,
    over_unseen: bool,
    /// The waits that were long enough, in order.
    waits: Vec<Wait>,
}

impl Waits {
    /// Memory of what was kept.
    pub fn held_bytes(&self) -> usize {
        self.waits.len() * size_of::<Wait>()
    }

    /// Follows that vCPU under a scheduler with slices of that length.
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

    /// The vCPU that is followed.
    pub fn entity(&self) -> Entity {
        self.entity
    }

    /// The vCPU gets that pCPU, for which it has waited. `events`: all since the last call, in order. `preempted`: it had
    /// lost its pCPU against its will.
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

    /// The vCPU has nothing more to do.
    pub fn idle(&mut self, now_ns: u64) {
        if let Some(last) = self.waits.last_mut() {
            last.busy_until_ns.get_or_insert(now_ns);
        }
    }

    /// Keeps up with what lasts.
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

    /// What an event within a wait, which ended on that pCPU, says about it.
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

    /// What made a stall.
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
