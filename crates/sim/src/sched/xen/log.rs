//! Why a scheduler decided as it did, so that a stall can be attributed to a mechanism.
//!
//! Nothing is recorded, and nothing is allocated, unless somebody asked.

use crate::sched::{Cpu, Entity};

/// Priority of a vCPU under the credit scheduler; the higher runs first. The numbers are Xen's, with their sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Of a pCPU that idles.
    Idle = -64,
    /// Has used more than its share.
    Over = -2,
    /// Has credit left, or is not accounted.
    Under = -1,
    /// Woken a short while ago.
    Boost = 0,
}

/// Why a wake did not preempt what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// credit: the woken vCPU's priority is not higher than that of the current one.
    NotHigher {
        /// Of the woken vCPU.
        woken: Priority,
        /// Of the current one.
        current: Priority,
    },
    /// credit2: every pCPU that could be preempted has run its current vCPU for less than the rate limit.
    RateLimit,
    /// credit2: every pCPU that could be preempted runs a vCPU with at least as much credit.
    LessCredit,
    /// rtds: every pCPU runs a vCPU whose deadline is as early.
    LaterDeadline,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Something happened that it waited for.
    Woken,
    /// It has nothing more to do.
    Blocked,
    /// It gets the pCPU.
    Runs,
    /// A decision leaves it the pCPU.
    GoesOn,
    /// credit: a tick found it running, and it was active already.
    Sampled,
    /// credit: a wake gave it BOOST.
    Boosted,
    /// credit: its own migration gave it BOOST (bug 1).
    BoostedByMigration,
    /// credit: a tick found it running and took its BOOST.
    BoostEnded,
    /// credit: accounting took its BOOST (bug 3 if it waits).
    BoostErased,
    /// A wake preempts, or takes an idle pCPU; the event's pCPU is the interrupted one.
    Tickled,
    /// A wake did not preempt.
    TickleRefused(Refusal),
    /// It keeps its pCPU though others wait, because it has run for less than the rate limit.
    RateLimited,
    /// credit: accounting found it in debt: it is OVER.
    WentOver,
    /// credit: accounting found it out of debt: it is UNDER.
    WentUnder,
    /// credit: it has more credit than a slice's and earns nothing from now on (bug 2).
    LeftActive,
    /// credit: a tick found it running: it earns again, and has this much credit.
    JoinedActive {
        /// In credits (100 us each); negative is a debt.
        credit: i64,
    },
    /// Its slice ended.
    SliceEnd,
    /// Its cap or budget is spent: it may not run.
    Parked,
    /// It may run again.
    Unparked,
    /// It was taken by the pCPU of the event from another one's queue.
    Stolen,
    /// credit: it is to leave its pCPU, to let another one run there or to run elsewhere.
    MigratedMark,
    /// credit2: it got new credit, as all vCPUs of its runqueue did.
    CreditReset,
}

/// Something that a scheduler decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// When.
    pub at_ns: u64,
    /// On which pCPU, or whose queue.
    pub cpu: Cpu,
    /// About whom.
    pub entity: Entity,
    /// What.
    pub kind: Kind,
}

/// The events since the last look, if they are recorded.
#[derive(Debug, Default)]
pub struct Log(Option<Vec<Event>>);

impl Log {
    /// Records from now on.
    pub fn start(&mut self) {
        self.0.get_or_insert_default();
    }

    /// Records one event, if events are recorded.
    #[inline]
    pub fn push(&mut self, at_ns: u64, cpu: u32, entity: u32, kind: Kind) {
        if let Some(events) = &mut self.0 {
            events.push(Event { at_ns, cpu: Cpu(cpu), entity: Entity(entity), kind });
        }
    }

    /// What was recorded since the last call.
    pub fn take(&mut self) -> Vec<Event> {
        self.0.as_mut().map_or_else(Vec::new, std::mem::take)
    }
}
