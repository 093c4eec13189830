//! What Linux's fair schedulers share: a runqueue for each CPU, weights and virtual time in integers, placement of woken
//! entities, balancing, bandwidth. What differs is a [`Policy`].
//!
//! Invariants: an entity is in exactly one state; a runnable one is on exactly one runqueue, of an allowed CPU; bitmaps of
//! idle and crowded CPUs, and whether a CPU needs ticks, are right after every call. The cost of a call depends on the
//! entities of a runqueue and, if a CPU is searched for, on those of a domain; never on the number of CPUs (but for the
//! first wake of an entity, which looks at the whole machine).
//!
//! Source: behaviour of Linux's `kernel/sched/fair.c`.

mod affinity;
mod balance;
mod bandwidth;
mod boost;
#[cfg(test)]
mod check;
mod domains;
mod placement;
mod policy;
mod runqueue;

pub use policy::{Arrival, Departure, NICE_0, Policy, Share, scaled};
pub use runqueue::{Runqueue, Waiter};

use super::tunables::MAX_DOMAIN_CPUS;
use super::{Boosting, Cpu, Entity, Orders, Pausing, Placement, Scheduler, Spec, Tunables};
use bandwidth::Bandwidth;
use domains::{Affinity, Domains};

/// Weights that Linux's cgroups allow (nice values lie within).
const WEIGHTS: std::ops::RangeInclusive<u32> = 2..=1 << 18;

/// Where an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Blocked,
    Queued,
    Running,
    Throttled,
}

/// What is known of an entity.
#[derive(Debug)]
struct Member {
    share: Share,
    state: State,
    /// Its CPU, or where it was last; none before its first wake.
    cpu: Option<u32>,
    affinity: Affinity,
    limit: Option<u32>,
    /// It pauses: how much of what it has a right to it keeps at most, ns.
    pauses: Option<u64>,
    /// Boosts under way: while there are any, it runs before those without, whatever its quota.
    boosts: u32,
    /// It runs before all others.
    urgent: bool,
}

impl Member {
    /// Those of a higher rank run before those of a lower one; of those of the lowest, as the policy says.
    fn rank(&self) -> u8 {
        if self.urgent { 2 } else { u8::from(self.boosts > 0) }
    }

    fn movable(&self) -> bool {
        !matches!(self.affinity, Affinity::One(_))
    }
}

/// A fair scheduler with that policy.
#[derive(Debug)]
pub struct Fair<P> {
    policy: P,
    tick_ns: u64,
    balance_interval_ns: u64,
    members: Vec<Member>,
    queues: Vec<Runqueue>,
    domains: Domains,
    bandwidth: Bandwidth,
    /// The number of entities above the lowest rank.
    ranked: usize,
}

impl<P: Policy> Fair<P> {
    /// A scheduler for that many CPUs (at least one), all idle.
    pub fn new(cpus: usize, tunables: &Tunables, policy: P) -> Fair<P> {
        let cpus = u32::try_from(cpus.max(1)).expect("CPUs are numbered by u32");
        let mut domains = Domains::new(cpus, tunables.domain_cpus.clamp(1, MAX_DOMAIN_CPUS));
        (0..cpus).for_each(|cpu| domains.update(cpu, true, false));
        Fair {
            policy,
            tick_ns: tunables.tick_ns(),
            balance_interval_ns: tunables.balance_interval_ns,
            members: Vec::new(),
            queues: (0..cpus).map(|_| Runqueue::default()).collect(),
            domains,
            bandwidth: Bandwidth::default(),
            ranked: 0,
        }
    }

    /// Share of what runs on that CPU, as of the last accounting.
    fn current(&self, cpu: u32) -> Option<&Share> {
        self.queues[cpu as usize].current.map(|entity| &self.members[entity as usize].share)
    }

    /// Charges what runs on that CPU. True if it should give way: its slice is over (and others wait) or its quota is.
    fn account(&mut self, now_ns: u64, cpu: u32) -> bool {
        let queue = &mut self.queues[cpu as usize];
        let Some(entity) = queue.current else { return false };
        let delta_ns = now_ns.saturating_sub(queue.since_ns);
        if delta_ns == 0 {
            return false;
        }
        queue.since_ns = now_ns;
        let member = &mut self.members[entity as usize];
        member.share.charge(delta_ns);
        let mut spent = member.limit.is_some_and(|limit| self.bandwidth.charge(limit, now_ns, delta_ns));
        spent &= member.boosts == 0;
        let over = self.policy.charged(queue, &mut member.share);
        spent || over && !queue.waiting().is_empty()
    }

    /// Orders `pick` for that CPU, once.
    fn resched(&mut self, cpu: u32, orders: &mut Orders) {
        if !std::mem::replace(&mut self.queues[cpu as usize].resched, true) {
            orders.resched.push(Cpu(cpu));
        }
    }

    /// Brings what is said about a CPU up to date with its runqueue.
    fn settle(&mut self, cpu: u32, orders: &mut Orders) {
        let queue = &mut self.queues[cpu as usize];
        let ticks = queue.current.is_some() && (queue.current_limited || !queue.waiting().is_empty());
        if ticks && !queue.ticks {
            orders.ticks.push(Cpu(cpu));
        }
        queue.ticks = ticks;
        self.domains.update(cpu, queue.is_idle(), queue.movable > 0 && queue.count() > 1);
    }

    /// Puts an entity that is on no runqueue onto that CPU's (accounted up to now).
    fn insert(&mut self, entity: u32, cpu: u32, arrival: Arrival) {
        let current = self.current(cpu).copied();
        let member = &mut self.members[entity as usize];
        let elsewhere = member.cpu.filter(|&was| was != cpu);
        let base_was = elsewhere.map(|was| self.queues[was as usize].base());
        let queue = &mut self.queues[cpu as usize];
        self.policy.place(queue, current.as_ref(), &mut member.share, arrival, base_was);
        queue.insert(self.policy.key(&member.share), &member.share);
        queue.movable += member.movable() as u32;
        (member.state, member.cpu) = (State::Queued, Some(cpu));
    }

    /// Like `insert`, and preempts what runs there if it should.
    fn enqueue(&mut self, now_ns: u64, entity: u32, cpu: u32, arrival: Arrival, orders: &mut Orders) {
        let mut resched = self.account(now_ns, cpu) || self.members[entity as usize].rank() > 0;
        self.insert(entity, cpu, arrival);
        let queue = &mut self.queues[cpu as usize];
        if !queue.resched {
            let members = &self.members;
            resched |= queue.current.is_none_or(|current| {
                let (current, woken) = (&members[current as usize].share, &members[entity as usize].share);
                self.policy.preempts(queue, current, woken)
            });
        }
        if resched {
            self.resched(cpu, orders);
        }
        self.settle(cpu, orders);
    }

    /// Makes a blocked or throttled entity runnable, on that CPU or on one that is chosen; or throttled, if its quota is
    /// spent.
    fn start(&mut self, now_ns: u64, entity: u32, cpu: Option<u32>, from: Option<Cpu>, orders: &mut Orders) {
        let member = &mut self.members[entity as usize];
        if let Some(limit) = member.limit
            && self.bandwidth.charge(limit, now_ns, 0)
            && member.boosts == 0
        {
            member.state = State::Throttled;
            return self.bandwidth.arm(limit, orders);
        }
        let arrival = match (member.pauses.take(), member.cpu) {
            (Some(keeps_ns), Some(was)) => {
                let (count, load) = self.queues[was as usize].paused;
                self.queues[was as usize].paused = (count - 1, load - u64::from(member.share.weight));
                Arrival::Resumed(keeps_ns)
            }
            (_, Some(_)) => Arrival::Woken,
            (_, None) => Arrival::New,
        };
        let cpu = cpu.unwrap_or_else(|| self.find_cpu(entity, from));
        self.enqueue(now_ns, entity, cpu, arrival, orders);
    }

    /// What runs on that CPU (accounted up to now) leaves it, to be in that state.
    fn put_aside(&mut self, cpu: u32, state: State) -> Option<u32> {
        let queue = &mut self.queues[cpu as usize];
        let entity = queue.current?;
        let member = &mut self.members[entity as usize];
        let share = member.share;
        self.policy.leave(queue, Some(&share), &mut member.share, Departure::Sleeps);
        member.state = state;
        (queue.current, queue.current_weight, queue.current_limited) = (None, 0, false);
        Some(entity)
    }

    /// Throttles what runs on that CPU (accounted up to now) if its quota is spent.
    fn throttle(&mut self, now_ns: u64, cpu: u32, orders: &mut Orders) {
        let Some(entity) = self.queues[cpu as usize].current else { return };
        let Member { limit: Some(limit), boosts: 0, .. } = self.members[entity as usize] else { return };
        if self.bandwidth.charge(limit, now_ns, 0) {
            self.put_aside(cpu, State::Throttled);
            self.bandwidth.arm(limit, orders);
        }
    }

    /// Switches to the one that waits at that place.
    fn switch(&mut self, now_ns: u64, cpu: u32, at: usize) {
        let queue = &mut self.queues[cpu as usize];
        let next = queue.remove(at);
        if let Some(entity) = queue.current {
            let member = &mut self.members[entity as usize];
            queue.insert(self.policy.key(&member.share), &member.share);
            queue.movable += member.movable() as u32;
            member.state = State::Queued;
        }
        let member = &mut self.members[next.entity as usize];
        member.state = State::Running;
        queue.movable -= member.movable() as u32;
        (queue.current, queue.current_weight) = (Some(next.entity), next.weight);
        queue.current_limited = member.limit.is_some();
        queue.since_ns = now_ns;
        self.policy.start(queue, &mut member.share);
    }
}

impl<P: Policy> Scheduler for Fair<P> {
    fn add(&mut self, spec: &Spec) -> Entity {
        let entity = u32::try_from(self.members.len()).expect("entities are numbered by u32");
        let weight = spec.weight.clamp(*WEIGHTS.start(), *WEIGHTS.end());
        let limit = spec.quota.as_ref().map(|quota| self.bandwidth.add(entity, quota));
        let affinity = self.domains.affinity(&spec.allowed);
        let share = Share::new(entity, weight);
        self.members.push(Member {
            share,
            state: State::Blocked,
            cpu: None,
            affinity,
            limit,
            pauses: None,
            boosts: 0,
            urgent: spec.urgent,
        });
        self.ranked += usize::from(spec.urgent);
        Entity(entity)
    }

    fn wake(&mut self, now_ns: u64, entity: Entity, from: Option<Cpu>, orders: &mut Orders) {
        if self.members[entity.0 as usize].state == State::Blocked {
            self.start(now_ns, entity.0, None, from, orders);
        }
    }

    fn block(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) {
        self.account(now_ns, cpu.0);
        self.put_aside(cpu.0, State::Blocked);
        self.settle(cpu.0, orders);
    }

    fn pick(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) -> Option<Entity> {
        let Cpu(cpu) = cpu;
        self.account(now_ns, cpu);
        self.throttle(now_ns, cpu, orders);
        self.expel(now_ns, cpu, orders);
        if self.queues[cpu as usize].is_idle() {
            self.pull(now_ns, cpu, orders);
        }
        let queue = &mut self.queues[cpu as usize];
        queue.resched = false;
        if !queue.waiting().is_empty() {
            let chosen = self.find_ranked(cpu).unwrap_or_else(|| {
                let queue = &self.queues[cpu as usize];
                self.policy.choose(queue, self.current(cpu))
            });
            if let Some(at) = chosen {
                self.switch(now_ns, cpu, at);
            }
        }
        self.settle(cpu, orders);
        self.running(Cpu(cpu))
    }

    fn tick(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) {
        let Cpu(cpu) = cpu;
        let mut resched = self.account(now_ns, cpu);
        let queue = &self.queues[cpu as usize];
        let Some(current) = self.current(cpu) else { return };
        resched |= !queue.waiting().is_empty() && self.policy.tick(queue, current);
        if resched {
            self.resched(cpu, orders);
        }
        self.relieve(now_ns, cpu, orders);
        self.settle(cpu, orders);
    }

    fn yield_now(&mut self, now_ns: u64, cpu: Cpu, _orders: &mut Orders) {
        self.account(now_ns, cpu.0);
        let queue = &mut self.queues[cpu.0 as usize];
        if let Some(entity) = queue.current
            && !queue.waiting().is_empty()
        {
            self.policy.yields(queue, &mut self.members[entity as usize].share);
        }
    }

    fn timer(&mut self, now_ns: u64, number: u32, orders: &mut Orders) {
        for index in 0..self.bandwidth.expire(number, now_ns) {
            let entity = self.bandwidth.member(number, index);
            let member = &self.members[entity as usize];
            if member.state == State::Throttled {
                self.start(now_ns, entity, member.cpu, None, orders);
            }
        }
    }

    fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    fn needs_tick(&self, cpu: Cpu) -> bool {
        self.queues[cpu.0 as usize].ticks
    }

    fn running(&self, cpu: Cpu) -> Option<Entity> {
        self.queues[cpu.0 as usize].current.map(Entity)
    }

    fn pausing(&mut self) -> Option<&mut dyn Pausing> {
        Some(self)
    }

    fn boosting(&mut self) -> Option<&mut dyn Boosting> {
        Some(self)
    }
}

impl<P: Policy> Placement for Fair<P> {
    fn place(&self, entity: Entity) -> Option<Cpu> {
        let member = &self.members[entity.0 as usize];
        let is_there = matches!(member.state, State::Queued | State::Running);
        member.cpu.filter(|_| is_there).map(Cpu)
    }

    fn set_allowed(&mut self, now_ns: u64, entity: Entity, allowed: &[Cpu], orders: &mut Orders) {
        let affinity = self.domains.affinity(allowed);
        self.change_affinity(now_ns, entity.0, affinity, orders);
    }
}

impl<P: Policy> Pausing for Fair<P> {
    fn pause(&mut self, now_ns: u64, cpu: Cpu, keeps_ns: u64, orders: &mut Orders) {
        self.account(now_ns, cpu.0);
        if let Some(entity) = self.put_aside(cpu.0, State::Blocked) {
            let member = &mut self.members[entity as usize];
            member.pauses = Some(keeps_ns);
            let (count, load) = self.queues[cpu.0 as usize].paused;
            self.queues[cpu.0 as usize].paused = (count + 1, load + u64::from(member.share.weight));
        }
        self.settle(cpu.0, orders);
    }

    fn lag_ns(&mut self, now_ns: u64, entity: Entity) -> i64 {
        let Some(cpu) = self.members[entity.0 as usize].cpu else { return 0 };
        self.account(now_ns, cpu);
        let average = self.queues[cpu as usize].average(self.current(cpu));
        average - self.members[entity.0 as usize].share.vruntime
    }

    fn favour(&mut self, now_ns: u64, entity: Entity, orders: &mut Orders) {
        let member = &self.members[entity.0 as usize];
        if let (State::Queued, Some(cpu)) = (member.state, member.cpu) {
            self.account(now_ns, cpu);
            self.queues[cpu as usize].next = Some(entity.0);
            self.resched(cpu, orders);
        }
    }
}
