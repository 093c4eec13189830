//! The invariants of a fair scheduler, and a look inside, for tests.

use super::{Fair, Policy, State};
use crate::sched::{Cpu, Entity, Orders};

impl<P: Policy> Fair<P> {
    /// Panics unless every invariant holds.
    pub fn check(&self) {
        let mut queued = vec![0; self.members.len()];
        let mut running = vec![0; self.members.len()];
        let mut paused = vec![(0, 0); self.queues.len()];
        for member in self.members.iter().filter(|member| member.pauses.is_some()) {
            let (count, load) = &mut paused[member.cpu.expect("who pauses has run") as usize];
            (*count, *load) = (*count + 1, *load + u64::from(member.share.weight));
        }
        for (cpu, queue) in self.queues.iter().enumerate() {
            let cpu = cpu as u32;
            let waiting = queue.waiting();
            assert!(waiting.is_sorted_by_key(|waiter| waiter.key), "a queue is out of order");
            let members = || waiting.iter().map(|waiter| &self.members[waiter.entity as usize]);
            let weight: i64 = waiting.iter().map(|waiter| waiter.weight as i64).sum();
            let sum = |w: &super::Waiter| w.weight as i64 * (w.vruntime - queue.base());
            assert_eq!(queue.sums(None), (waiting.iter().map(sum).sum(), weight));
            assert_eq!(queue.movable as usize, members().filter(|member| member.movable()).count());
            for waiter in waiting {
                let member = &self.members[waiter.entity as usize];
                assert_eq!(
                    (waiter.vruntime, waiter.key),
                    (member.share.vruntime, self.policy.key(&member.share))
                );
                queued[waiter.entity as usize] += 1;
                self.check_place(waiter.entity, cpu, false);
            }
            if let Some(entity) = queue.current {
                running[entity as usize] += 1;
                self.check_place(entity, cpu, queue.unwelcome);
            }
            let current = queue.current.map(|entity| &self.members[entity as usize]);
            assert_eq!(queue.current_weight, current.map_or(0, |member| member.share.weight));
            assert_eq!(queue.current_limited, current.is_some_and(|member| member.limit.is_some()));
            self.check_bits(cpu);
            assert_eq!(queue.paused, paused[cpu as usize]);
        }
        assert_eq!(self.ranked, self.members.iter().filter(|member| member.rank() > 0).count());
        for (entity, member) in self.members.iter().enumerate() {
            let expected = match member.state {
                State::Blocked | State::Throttled => (0, 0),
                State::Queued => (1, 0),
                State::Running => (0, 1),
            };
            assert_eq!((queued[entity], running[entity]), expected, "entity {entity} is {:?}", member.state);
        }
    }

    fn check_place(&self, entity: u32, cpu: u32, unwelcome: bool) {
        let member = &self.members[entity as usize];
        assert_eq!(member.cpu, Some(cpu));
        assert!(self.may_run(entity, cpu) || unwelcome, "pinning is violated");
    }

    fn check_bits(&self, cpu: u32) {
        let queue = &self.queues[cpu as usize];
        let (domain, bit) = self.domains.locate(cpu);
        let crowded = queue.count() > 1 && queue.movable > 0;
        assert_eq!(self.domains.idle(domain) >> bit & 1 == 1, queue.count() == 0);
        assert_eq!(self.domains.crowded(domain) >> bit & 1 == 1, crowded);
        let ticks = queue.current.is_some() && (!queue.waiting().is_empty() || queue.current_limited);
        assert_eq!(queue.ticks, ticks);
    }

    /// By how much run time (ns) each runnable entity of a CPU is behind its share, as of the last accounting.
    pub fn lags_ns(&self, cpu: Cpu) -> Vec<(Entity, i64)> {
        let queue = &self.queues[cpu.0 as usize];
        let current = self.current(cpu.0);
        let average = queue.average(current);
        let waiting = queue.waiting().iter().map(|waiter| (waiter.entity, waiter.vruntime, waiter.weight));
        let all = waiting.chain(current.map(|share| (share.entity, share.vruntime, share.weight)));
        all.map(|(entity, vruntime, weight)| (Entity(entity), (average - vruntime) * weight as i64 / 1024))
            .collect()
    }

    /// How many entities are runnable but do not run on that CPU.
    pub fn waiting(&self, cpu: Cpu) -> usize {
        self.queues[cpu.0 as usize].waiting().len()
    }

    /// Whether its quota keeps the entity from running.
    pub fn is_throttled(&self, entity: Entity) -> bool {
        self.members[entity.0 as usize].state == State::Throttled
    }

    /// Run time that the entity was charged.
    pub fn charged_ns(&self, entity: Entity) -> u64 {
        self.members[entity.0 as usize].share.ran_ns
    }

    /// Balances as a tick does when it is due.
    pub fn relieve_now(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) {
        self.queues[cpu.0 as usize].balance_ns = now_ns;
        self.relieve(now_ns, cpu.0, orders);
    }

    /// Whether some CPU of the domain of an idle one has an entity that waits and might run on the idle one.
    pub fn could_pull(&self, cpu: Cpu) -> bool {
        let home = self.domains.locate(cpu.0).0;
        self.queues.iter().enumerate().any(|(from, queue)| {
            let near = self.domains.locate(from as u32).0 == home;
            let allowed = |waiter: &super::Waiter| self.may_run(waiter.entity, cpu.0);
            near && queue.count() > 1 && queue.waiting().iter().any(allowed)
        })
    }
}
