//! Xen's credit2 scheduler, the default since 4.12.
//!
//! The pCPUs of a runqueue share one queue, ordered by credit. A vCPU burns credit while it runs, the slower the more it
//! weighs; when the next one to run has none left, all get new credit. There is no BOOST: a woken vCPU preempts if it has
//! more credit than a current one that has run for its rate limit.
//!
//! Its *late wake*: a wake that finds the current vCPU short of its rate limit (by more than 50 us) gives up, and nothing
//! tries again when the limit is over. The current vCPU's timer was set when the queue was empty, for all of its credit, up
//! to 10 ms. So who wakes 0.9 ms after the other got the pCPU waits about 9 ms. [`Params::retry_refused`] fixes it.
//!
//! Invariants: a vCPU is in exactly one state; a queued one is in its runqueue, ordered by credit; a pCPU is idle if its
//! last decision found nothing.
//!
//! Left out: balancing between runqueues (a vCPU stays on the one where it is added: that of the fewest vCPUs), caps,
//! hyper-threads, soft affinity.
//!
//! Source: behaviour of Xen 4.17.

pub mod params;
mod runqueue;
mod schedule;
#[cfg(test)]
mod tests;
mod tickle;

pub use params::Params;

use super::xen::{Kind, Log, Mask, Pcpus};
use super::{Cpu, Entity, Orders, Scheduler, Spec};
use runqueue::{Runqueue, State, Vcpu};

/// A credit2 scheduler: one pool.
#[derive(Debug)]
pub struct Credit2 {
    params: Params,
    vcpus: Vec<Vcpu>,
    queues: Vec<Runqueue>,
    /// The runqueue of each pCPU; none if it is not in the pool.
    queue_of: Vec<Option<usize>>,
    /// How many vCPUs started on each pCPU.
    started_on: Vec<u32>,
    pcpus: Pcpus,
    log: Log,
}

impl Credit2 {
    /// A scheduler without vCPUs.
    pub fn new(params: Params) -> Credit2 {
        let pool = Mask::of(params.cpus, &params.pool);
        let size = if params.runqueue_cpus == 0 { params.cpus } else { params.runqueue_cpus };
        let mut queue_of = vec![None; params.cpus as usize];
        let mut queues = Vec::new();
        for first in (0..params.cpus).step_by(size as usize) {
            let cpus: Vec<Cpu> = (first..params.cpus.min(first.saturating_add(size))).map(Cpu).collect();
            let cpus = Mask::of(params.cpus, &cpus).and(&pool);
            if !cpus.is_empty() {
                cpus.iter().for_each(|cpu| queue_of[cpu as usize] = Some(queues.len()));
                queues.push(Runqueue::new(cpus, Mask::none(params.cpus)));
            }
        }
        let pcpus = Pcpus::new(params.cpus, 0);
        let started_on = vec![0; params.cpus as usize];
        Credit2 { params, vcpus: Vec::new(), queues, queue_of, started_on, pcpus, log: Log::default() }
    }

    /// Charges what runs on that pCPU.
    fn burn(&mut self, now_ns: u64, cpu: u32) {
        if let Some(current) = self.pcpus[cpu].current {
            let vcpu = &mut self.vcpus[current as usize];
            vcpu.burn(now_ns, self.queues[vcpu.queue].most_weight);
        }
    }

    /// Puts a vCPU into its runqueue, and interrupts whom it should.
    fn enqueue(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let vcpu = &mut self.vcpus[entity as usize];
        vcpu.state = State::Queued;
        let queue = vcpu.queue;
        self.queues[queue].insert(&self.vcpus, entity);
        self.tickle(now_ns, entity, orders);
    }
}

/// It needs no ticks: a pCPU's timer is set for what it runs.
impl Scheduler for Credit2 {
    fn add(&mut self, spec: &Spec) -> Entity {
        let entity = u32::try_from(self.vcpus.len()).expect("vCPUs are numbered by u32");
        let wanted = Mask::of(self.params.cpus, &spec.allowed);
        let usable = |queue: &usize| self.queues[*queue].cpus.meets(&wanted);
        let fewest = |queue: &usize| self.queues[*queue].members.len();
        let number = (0..self.queues.len()).filter(usable).min_by_key(fewest).unwrap_or(0);
        let queue = &mut self.queues[number];
        let allowed = queue.cpus.narrowed(&spec.allowed);
        let cpu =
            allowed.iter().min_by_key(|&cpu| self.started_on[cpu as usize]).expect("a runqueue has pCPUs");
        self.started_on[cpu as usize] += 1;
        let weight = spec.weight.max(1).into();
        queue.members.push(entity);
        queue.most_weight = queue.most_weight.max(weight);
        self.vcpus.push(Vcpu::new(weight, allowed, number, cpu));
        Entity(entity)
    }

    fn wake(&mut self, now_ns: u64, entity: Entity, _from: Option<Cpu>, orders: &mut Orders) {
        let vcpu = &self.vcpus[entity.0 as usize];
        if vcpu.state == State::Blocked {
            self.log.push(now_ns, vcpu.cpu, entity.0, Kind::Woken);
            self.enqueue(now_ns, entity.0, orders);
        }
    }

    fn block(&mut self, now_ns: u64, cpu: Cpu, _orders: &mut Orders) {
        self.burn(now_ns, cpu.0);
        if let Some(entity) = self.pcpus[cpu.0].current.take() {
            self.vcpus[entity as usize].state = State::Blocked;
            self.log.push(now_ns, cpu.0, entity, Kind::Blocked);
        }
    }

    fn pick(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) -> Option<Entity> {
        if self.pcpus.due(cpu.0)
            && let Some(queue) = self.queue_of[cpu.0 as usize]
        {
            self.decide(now_ns, queue, cpu.0, orders);
        }
        self.running(cpu)
    }

    fn yield_now(&mut self, _now_ns: u64, cpu: Cpu, _orders: &mut Orders) {
        if let Some(current) = self.pcpus[cpu.0].current {
            self.vcpus[current as usize].yields = true;
            self.pcpus.make_due(cpu.0);
        }
    }

    fn timer(&mut self, now_ns: u64, number: u32, orders: &mut Orders) {
        if let Some(cpu) = self.pcpus.expired(now_ns, number) {
            self.pcpus.end_slice(now_ns, cpu, &mut self.log, orders);
        }
    }

    fn tick_ns(&self) -> u64 {
        params::CREDIT_NS as u64
    }

    fn running(&self, cpu: Cpu) -> Option<Entity> {
        self.pcpus[cpu.0].current.map(Entity)
    }

    fn log(&mut self) -> Option<&mut Log> {
        Some(&mut self.log)
    }
}
