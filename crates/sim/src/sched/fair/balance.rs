//! Balancing: runnable entities move from crowded CPUs to idle or less loaded ones of their domain, else of one other.
//!
//! - A CPU that would go idle pulls one (Linux's newly idle balancing).
//! - A tick on a crowded CPU moves one to an idle CPU (Linux kicks that CPU, which pulls); else, from time to time
//!   (`balance_interval`), to the least loaded CPU. In Linux every CPU pulls at its own ticks; a crowded CPU ticks
//!   anyway, so here it acts for the others, which then need no ticks.
//!
//! Left out: Linux's limits on newly idle balancing (cost, cache-hot entities), and its decaying load averages: load is
//! the sum of the weights of what is runnable.

use super::domains::Affinity;
use super::{Arrival, Departure, Fair, Policy, Runqueue};
use crate::sched::Orders;

/// Loads differ when one is more than this per cent of another (`imbalance_pct` of Linux's domains, 117 to 125).
const IMBALANCE_PERCENT: u64 = 125;

impl<P: Policy> Fair<P> {
    /// Pulls an entity to that CPU, which has nothing to run.
    pub(super) fn pull(&mut self, now_ns: u64, cpu: u32, orders: &mut Orders) {
        if !self.domains.any_crowded() {
            return;
        }
        let (home, bit) = self.domains.locate(cpu);
        let elsewhere = || {
            let count = self.domains.count();
            let mut others = (1..count).map(|step| (home + step) % count);
            self.busiest(cpu, others.find(|&domain| self.domains.crowded(domain) != 0)?, 63)
        };
        if let Some((from, at)) = self.busiest(cpu, home, bit).or_else(elsewhere) {
            let entity = self.detach(now_ns, from, at, orders);
            self.insert(entity, cpu, Arrival::Moved);
        }
    }

    /// The CPU of that domain with most load of those that have an entity for `cpu`, and that entity's place there.
    fn busiest(&self, cpu: u32, domain: usize, bit: u32) -> Option<(u32, usize)> {
        let mut best: Option<(u32, usize)> = None;
        let mut most = 0;
        for from in self.domains.round(self.domains.crowded(domain), domain, bit) {
            let queue = &self.queues[from as usize];
            if queue.balanced_load() > most
                && let Some(at) = queue.waiting().iter().position(|waiter| self.may_run(waiter.entity, cpu))
            {
                (best, most) = (Some((from, at)), queue.balanced_load());
            }
        }
        best
    }

    /// Whether that entity may run on that CPU.
    pub(super) fn may_run(&self, entity: u32, cpu: u32) -> bool {
        let (domain, bit) = self.domains.locate(cpu);
        self.domains.allowed(&self.members[entity as usize].affinity, domain) >> bit & 1 == 1
    }

    /// At a tick: if that CPU has an entity too many, has another CPU take one.
    pub(super) fn relieve(&mut self, now_ns: u64, cpu: u32, orders: &mut Orders) {
        let (home, bit) = self.domains.locate(cpu);
        if self.domains.crowded(home) >> bit & 1 == 0 {
            return;
        }
        let idle = |(at, affinity)| Some((at, self.find_idle(affinity, home, bit)?));
        let to_idle = self.affinities(cpu).find_map(idle);
        if let Some((at, to)) = to_idle {
            return self.move_to(now_ns, cpu, at, to, orders);
        }
        let queue = &mut self.queues[cpu as usize];
        if now_ns < queue.balance_ns {
            return;
        }
        queue.balance_ns = now_ns + self.balance_interval_ns;
        let elsewhere = || self.outlet(cpu, self.other_domain(now_ns, home)?, 63);
        if let Some((at, to)) = self.outlet(cpu, home, bit).or_else(elsewhere) {
            self.move_to(now_ns, cpu, at, to, orders);
        }
    }

    /// Moves what waits at that place to another CPU.
    fn move_to(&mut self, now_ns: u64, cpu: u32, at: usize, to: u32, orders: &mut Orders) {
        let entity = self.detach(now_ns, cpu, at, orders);
        self.queues[to as usize].balance_ns = now_ns + self.balance_interval_ns;
        self.enqueue(now_ns, entity, to, Arrival::Moved, orders);
    }

    /// Of what waits on a CPU, the places and affinities of those that may run elsewhere.
    fn affinities(&self, cpu: u32) -> impl Iterator<Item = (usize, &Affinity)> {
        let waiting = self.queues[cpu as usize].waiting().iter().enumerate();
        waiting.filter_map(|(at, waiter)| {
            let member = &self.members[waiter.entity as usize];
            member.movable().then_some((at, &member.affinity))
        })
    }

    /// A place in that CPU's queue, and a CPU of that domain, so that moving the one to the other improves the balance.
    fn outlet(&self, cpu: u32, domain: usize, bit: u32) -> Option<(usize, u32)> {
        let queue = &self.queues[cpu as usize];
        self.affinities(cpu).find_map(|(at, affinity)| {
            let to = self.least_loaded(affinity, domain, bit)?;
            let weight = queue.waiting()[at].weight as u64;
            unbalanced(queue, &self.queues[to as usize], weight).then_some((at, to))
        })
    }

    /// Takes the entity at that place out of that CPU's queue, to be moved.
    pub(super) fn detach(&mut self, now_ns: u64, cpu: u32, at: usize, orders: &mut Orders) -> u32 {
        if self.account(now_ns, cpu) {
            self.resched(cpu, orders);
        }
        let current = self.current(cpu).copied();
        let queue = &mut self.queues[cpu as usize];
        let entity = queue.waiting()[at].entity;
        let share = &mut self.members[entity as usize].share;
        self.policy.leave(queue, current.as_ref(), share, Departure::Moves);
        queue.remove(at);
        queue.movable -= 1;
        self.settle(cpu, orders);
        entity
    }

    /// A domain but `home`, each in its turn as time goes by.
    fn other_domain(&self, now_ns: u64, home: usize) -> Option<usize> {
        let others = self.domains.count() - 1;
        let turn = (now_ns / self.balance_interval_ns.max(1)) as usize;
        (others > 0).then(|| (home + 1 + turn % others) % (others + 1))
    }
}

/// Whether an entity of that weight should move: there is one entity too many or more than [`IMBALANCE_PERCENT`] of the
/// load, and it does not leave the other side with more than this side has. (It may change sides: so three equal entities
/// take turns on two CPUs.)
fn unbalanced(from: &Runqueue, to: &Runqueue, weight: u64) -> bool {
    let (from_load, to_load) = (from.balanced_load(), to.balanced_load());
    let crowded =
        from.balanced_count() >= to.balanced_count() + 2 || from_load * 100 > to_load * IMBALANCE_PERCENT;
    crowded && to_load + weight <= from_load
}
