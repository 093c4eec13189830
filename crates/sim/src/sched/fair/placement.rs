//! On which CPU an entity that becomes runnable is queued.
//!
//! As Linux's `select_task_rq_fair` in outline: where it was if that is idle, else an idle CPU near it or near its waker,
//! else where it was or where its waker is, whichever has less load, with a bias for the waker's. A new entity goes to the idlest domain.

use super::domains::{Affinity, next_bit};
use super::{Fair, Policy};
use crate::sched::Cpu;

impl<P: Policy> Fair<P> {
    /// A CPU for that entity, which is on no runqueue. `from` is the CPU that wakes it.
    pub(super) fn find_cpu(&self, entity: u32, from: Option<Cpu>) -> u32 {
        let member = &self.members[entity as usize];
        if let Affinity::One(cpu) = member.affinity {
            return cpu;
        }
        let Some(was) = member.cpu.filter(|&was| self.may_run(entity, was)) else {
            return self.find_first(&member.affinity);
        };
        let (home, bit) = self.domains.locate(was);
        if self.domains.idle(home) >> bit & 1 == 1 {
            return was;
        }
        if let Some(cpu) = self.find_idle(&member.affinity, home, bit) {
            return cpu;
        }
        let Some(Cpu(from)) = from else { return was };
        let (domain, bit) = self.domains.locate(from);
        if domain != home
            && let Some(cpu) = self.find_idle(&member.affinity, domain, bit)
        {
            return cpu;
        }
        // Linux's bias for the waker's CPU, half of a domain's imbalance_pct beyond 100: of equal ones it is the waker's.
        if self.may_run(entity, from) && self.load(from) * 100 < self.load(was) * 108 { from } else { was }
    }

    /// An idle CPU of that domain: the first after that bit, going round.
    pub(super) fn find_idle(&self, affinity: &Affinity, domain: usize, bit: u32) -> Option<u32> {
        let idle = self.domains.idle(domain) & self.domains.allowed(affinity, domain);
        next_bit(idle, bit).map(|bit| self.domains.cpu(domain, bit))
    }

    /// For a new entity: an idle CPU of the domain with most of them, else the CPU with the least load.
    fn find_first(&self, affinity: &Affinity) -> u32 {
        let idle = |domain| self.domains.idle(domain) & self.domains.allowed(affinity, domain);
        let idlest = (0..self.domains.count()).rev().max_by_key(|&domain| idle(domain).count_ones());
        let found = idlest.and_then(|domain| self.find_idle(affinity, domain, 63));
        let least = || {
            (0..self.domains.count())
                .filter_map(|domain| self.least_loaded(affinity, domain, 63))
                .min_by_key(|&cpu| self.load(cpu))
        };
        found.or_else(least).expect("an affinity is never empty")
    }

    /// The CPU of that domain with the least load: the first such after that bit, going round.
    pub(super) fn least_loaded(&self, affinity: &Affinity, domain: usize, bit: u32) -> Option<u32> {
        self.domains
            .round(self.domains.allowed(affinity, domain), domain, bit)
            .min_by_key(|&cpu| self.load(cpu))
    }

    /// Sum of the weights of a CPU's entities, those that pause included.
    fn load(&self, cpu: u32) -> u64 {
        self.queues[cpu as usize].balanced_load()
    }
}
