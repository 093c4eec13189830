//! Boosts of single entities, as a daemon on the host makes them: the entity leaves its quota group for a moment, and runs
//! before all others of its CPU but urgent ones ([`crate::sched::Spec::urgent`]).
//!
//! The time is lent. It is charged to the entity's quota and virtual time as at any other time, so that it waits for it
//! afterwards.

use super::{Fair, Policy, Share, State};
use crate::sched::{Boosting, Cpu, Entity, Orders};

impl<P: Policy> Boosting for Fair<P> {
    fn boost(&mut self, now_ns: u64, entity: Entity, orders: &mut Orders) {
        let Entity(entity) = entity;
        let member = &mut self.members[entity as usize];
        member.boosts += 1;
        if member.boosts > 1 {
            return;
        }
        self.ranked += usize::from(!member.urgent);
        if member.state == State::Throttled {
            let cpu = member.cpu;
            self.start(now_ns, entity, cpu, None, orders);
        }
        let member = &self.members[entity as usize];
        if let (State::Queued, Some(cpu)) = (member.state, member.cpu) {
            self.resched(cpu, orders);
        }
    }

    fn end_boost(&mut self, now_ns: u64, entity: Entity, orders: &mut Orders) {
        let Entity(entity) = entity;
        let member = &mut self.members[entity as usize];
        let Some(left) = member.boosts.checked_sub(1) else { return };
        member.boosts = left;
        if left > 0 {
            return;
        }
        self.ranked -= usize::from(!member.urgent);
        let (state, cpu, limit) = (member.state, member.cpu, member.limit);
        let Some(cpu) = cpu else { return };
        match state {
            State::Running => {
                self.account(now_ns, cpu);
                let share = &mut self.members[entity as usize].share;
                // EEVDF protects whom it switches to; a boost ends at once.
                share.protected = share.protected.min(share.vruntime);
                self.resched(cpu, orders);
            }
            State::Queued if limit.is_some_and(|limit| self.bandwidth.charge(limit, now_ns, 0)) => {
                self.throttle_queued(now_ns, entity, cpu, orders);
            }
            State::Queued | State::Throttled | State::Blocked => {}
        }
    }

    fn gives_way(&mut self, now_ns: u64, cpu: Cpu) -> bool {
        let Cpu(cpu) = cpu;
        self.account(now_ns, cpu);
        let Some(current) = self.queues[cpu as usize].current else { return false };
        let member = &self.members[current as usize];
        if member.rank() > 0 || self.find_ranked(cpu).is_some() {
            return false;
        }
        let is_spent = member.limit.is_some_and(|limit| self.bandwidth.charge(limit, now_ns, 0));
        let queue = &self.queues[cpu as usize];
        is_spent || !queue.waiting().is_empty() && self.policy.choose(queue, self.current(cpu)).is_some()
    }

    fn debt_ns(&self, now_ns: u64, entity: Entity) -> u64 {
        let member = &self.members[entity.0 as usize];
        // What runs has not been charged since the last accounting.
        let on = member.cpu.filter(|_| member.state == State::Running).map(|cpu| &self.queues[cpu as usize]);
        let since_ns = on.map_or(0, |queue| now_ns.saturating_sub(queue.since_ns));
        let quota_ns = member.limit.map_or(0, |limit| self.bandwidth.debt_ns(limit, now_ns, since_ns));
        let ahead = match (member.state, member.cpu) {
            (State::Queued | State::Running, Some(cpu)) => self.ahead(now_ns, member.share, cpu),
            _ => 0,
        };
        quota_ns.max(u64::try_from(ahead).unwrap_or(0))
    }
}

impl<P: Policy> Fair<P> {
    /// By how much virtual time one that runs or waits on that CPU is ahead of the average there.
    fn ahead(&self, now_ns: u64, share: Share, cpu: u32) -> i64 {
        let queue = &self.queues[cpu as usize];
        let current = self.current(cpu).map(|current| {
            let mut current = *current;
            current.charge(now_ns.saturating_sub(queue.since_ns));
            current
        });
        let own = current.filter(|current| current.entity == share.entity).unwrap_or(share);
        own.vruntime - queue.average(current.as_ref())
    }

    /// What runs next on that CPU because of its rank: the one that runs already (`None`), or a place in the queue.
    pub(super) fn find_ranked(&self, cpu: u32) -> Option<Option<usize>> {
        if self.ranked == 0 {
            return None;
        }
        let queue = &self.queues[cpu as usize];
        let rank = |entity: u32| self.members[entity as usize].rank();
        let ranks = queue.waiting().iter().map(|waiter| rank(waiter.entity));
        let highest = ranks.clone().max()?.max(queue.current.map_or(0, rank));
        if highest == 0 {
            return None;
        }
        if queue.current.is_some_and(|current| rank(current) == highest) {
            return Some(None);
        }
        Some(ranks.clone().position(|rank| rank == highest))
    }

    /// Throttles what waits on that CPU.
    fn throttle_queued(&mut self, now_ns: u64, entity: u32, cpu: u32, orders: &mut Orders) {
        let queue = &mut self.queues[cpu as usize];
        let at = queue.waiting().iter().position(|waiter| waiter.entity == entity);
        let at = at.expect("a queued entity waits on its CPU");
        let member = &mut self.members[entity as usize];
        // `detach` takes one that counts as movable.
        queue.movable += u32::from(!member.movable());
        member.state = State::Throttled;
        let limit = member.limit;
        self.detach(now_ns, cpu, at, orders);
        if let Some(limit) = limit {
            self.bandwidth.arm(limit, orders);
        }
    }
}
