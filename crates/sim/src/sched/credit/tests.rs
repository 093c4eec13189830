//! Tests of the credit scheduler: single calls on a bench, and whole runs.

mod accounting;
mod bugs;
mod decisions;
mod fuzz;
mod runs;
mod wakes;

use reprieve_study::units::{MILLISECOND_NS as MS, SECOND_NS as S};

use super::vcpu::Vcpu;
use super::{Credit, Fixes, Params, Version};
use crate::sched::xen::{DomainSpec, Event, Kind, Priority};
use crate::sched::{Cpu, Entity, Orders, Scheduler, Spec};

const US: u64 = MS / 1_000;

/// At one time; two vCPUs that preempt each other for ever would make more.
const MOST_DECISIONS: u32 = 1_000;

/// A vCPU of a domain of its own that may run on those pCPUs.
fn on(cpus: &[u32]) -> Spec {
    Spec { allowed: cpus.iter().copied().map(Cpu).collect(), ..Spec::default() }
}

/// A scheduler whose timers the test calls.
struct Bench {
    sched: Credit,
    orders: Orders,
    now_ns: u64,
}

impl Bench {
    fn new(params: Params) -> Bench {
        let mut sched = Credit::new(params);
        sched.log.start();
        Bench { sched, orders: Orders::default(), now_ns: 0 }
    }

    /// Xen 4.17 on so many pCPUs.
    fn xen(cpus: u32) -> Bench {
        Bench::new(Params::xen(Version::V4_17, cpus))
    }

    fn add(&mut self, cpus: &[u32]) -> Entity {
        self.sched.add(&on(cpus))
    }

    /// One that is woken now, and those pCPUs that are interrupted decide.
    fn woken(&mut self, cpus: &[u32]) -> Entity {
        let entity = self.add(cpus);
        self.wake(entity);
        entity
    }

    fn pass(&mut self, for_ns: u64) {
        self.now_ns += for_ns;
    }

    fn wake(&mut self, entity: Entity) {
        self.sched.wake(self.now_ns, entity, None, &mut self.orders);
        self.obey();
    }

    fn block(&mut self, cpu: u32) {
        self.sched.block(self.now_ns, Cpu(cpu), &mut self.orders);
        self.orders.resched.push(Cpu(cpu));
        self.obey();
    }

    /// The tick of a pCPU; says whether it ordered a decision.
    fn tick(&mut self, cpu: u32) -> bool {
        self.timer(1 + cpu)
    }

    fn account(&mut self) -> bool {
        self.timer(0)
    }

    /// The end of the slice of what runs there, whenever it is due.
    fn end_slice(&mut self, cpu: u32) {
        let number = 1 + self.sched.params.cpus + cpu;
        let armed = self.orders.arm.iter().rfind(|armed| armed.0 == number).copied();
        self.now_ns = armed.expect("it has a slice").1;
        self.timer(number);
    }

    fn timer(&mut self, number: u32) -> bool {
        self.sched.timer(self.now_ns, number, &mut self.orders);
        let ordered = !self.orders.resched.is_empty();
        self.obey();
        ordered
    }

    fn obey(&mut self) {
        let mut decisions = 0;
        while let Some(cpu) = self.orders.resched.pop() {
            self.sched.pick(self.now_ns, cpu, &mut self.orders);
            decisions += 1;
            assert!(decisions < MOST_DECISIONS, "decisions without end at one time");
        }
        self.sched.check();
    }

    fn vcpu(&mut self, entity: Entity) -> &mut Vcpu {
        &mut self.sched.vcpus[entity.0 as usize]
    }

    fn credit(&mut self, entity: Entity) -> i64 {
        self.vcpu(entity).credit
    }

    fn priority(&mut self, entity: Entity) -> Priority {
        self.vcpu(entity).priority()
    }

    fn running(&self, cpu: u32) -> Option<Entity> {
        self.sched.running(Cpu(cpu))
    }

    fn waiting(&self, cpu: u32) -> Vec<Entity> {
        self.sched.queues[cpu as usize].waiting.iter().copied().map(Entity).collect()
    }

    fn activate(&mut self, entity: Entity) {
        self.sched.activate(entity.0);
    }

    /// Kinds of what happened to a vCPU since the last look, without its moves.
    fn kinds(&mut self, entity: Entity) -> Vec<Kind> {
        let is_move = |kind: Kind| {
            matches!(kind, Kind::Woken | Kind::Blocked | Kind::Runs | Kind::GoesOn | Kind::Sampled)
        };
        let of = |event: Event| (event.entity == entity && !is_move(event.kind)).then_some(event.kind);
        self.sched.log.take().into_iter().filter_map(of).collect()
    }

    /// The moves of all vCPUs since the last look.
    fn moves(&mut self) -> Vec<(Entity, Kind)> {
        let recorded = self.sched.log.take().into_iter();
        let moves = [Kind::Woken, Kind::Blocked, Kind::Runs, Kind::GoesOn, Kind::Sampled];
        recorded.filter(|event| moves.contains(&event.kind)).map(|event| (event.entity, event.kind)).collect()
    }
}
