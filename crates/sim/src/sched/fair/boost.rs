//! Boosts of single entities, as a daemon on the host makes them: the entity leaves its quota group for a moment, and runs
//! before all others of its CPU.
//!
//! The time is lent. It is charged to the entity's quota and virtual time as at any other time, so that it waits for it
//! afterwards.

use super::{Fair, Policy, State};
use crate::sched::{Boosting, Entity, Orders};

impl<P: Policy> Boosting for Fair<P> {
    fn boost(&mut self, now_ns: u64, entity: Entity, orders: &mut Orders) {
        let Entity(entity) = entity;
        let member = &mut self.members[entity as usize];
        if std::mem::replace(&mut member.boosted, true) {
            return;
        }
        self.boosted += 1;
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
        if !std::mem::take(&mut member.boosted) {
            return;
        }
        self.boosted -= 1;
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

    fn debt_ns(&mut self, now_ns: u64, entity: Entity) -> u64 {
        let member = &self.members[entity.0 as usize];
        let quota_ns = member.limit.map_or(0, |limit| self.bandwidth.debt_ns(limit, now_ns));
        let ahead = match (member.state, member.cpu) {
            (State::Queued | State::Running, Some(cpu)) => {
                self.account(now_ns, cpu);
                let average = self.queues[cpu as usize].average(self.current(cpu));
                self.members[entity.0 as usize].share.vruntime - average
            }
            _ => 0,
        };
        quota_ns.max(u64::try_from(ahead).unwrap_or(0))
    }
}

impl<P: Policy> Fair<P> {
    /// What runs next on that CPU because it is boosted: the one that runs already (`None`), or a place in the queue.
    pub(super) fn find_boosted(&self, cpu: u32) -> Option<Option<usize>> {
        if self.boosted == 0 {
            return None;
        }
        let queue = &self.queues[cpu as usize];
        let is_boosted = |entity: u32| self.members[entity as usize].boosted;
        if queue.current.is_some_and(is_boosted) {
            return Some(None);
        }
        queue.waiting().iter().position(|waiter| is_boosted(waiter.entity)).map(Some)
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
