//! Xen's real-time scheduler (`sched=rtds`): global earliest deadline first over deferrable servers.
//!
//! A vCPU has a budget for every period. Of those with budget left, the ones with the earliest deadlines (ends of
//! periods) run, on as many pCPUs as the pool has; there is one queue for all. Who has spent its budget waits for its next
//! period, even if pCPUs idle.
//!
//! Budget and period are those of [`Spec::quota`], else of [`Params`].
//!
//! Invariants: a vCPU is in exactly one state; the queue is ordered by deadline, first come first among equals; nobody
//! queued or running is past its deadline after a replenishment.
//!
//! Left out: extra time (an option since 4.11, by which a vCPU without budget may use idle pCPUs).
//!
//! Source: behaviour of Xen 4.17; Xi and others, "Real-time multi-core virtual machine scheduling in Xen", EMSOFT 2014.

mod server;
#[cfg(test)]
mod tests;

use reprieve_study::units::MILLISECOND_NS;

use super::xen::{Kind, Log, Mask, Pcpus, Refusal};
use super::{Cpu, Entity, Orders, Scheduler, Spec};
use server::{Server, State};

/// Number of the replenishments' timer; then follow those of the pCPUs.
const REPLENISH: u32 = 0;
/// Xen's default period.
pub const PERIOD_NS: u64 = 10 * MILLISECOND_NS;
/// Xen's default budget.
pub const BUDGET_NS: u64 = 4 * MILLISECOND_NS;

/// What a real-time scheduler is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// pCPUs of the machine, at least one.
    pub cpus: u32,
    /// pCPUs of the pool; all if empty.
    pub pool: Vec<Cpu>,
    /// Budget of a vCPU without a quota.
    pub budget_ns: u64,
    /// Period of a vCPU without a quota.
    pub period_ns: u64,
}

impl Params {
    /// Xen's defaults on so many pCPUs.
    pub fn xen(cpus: u32) -> Params {
        Params { cpus: cpus.max(1), pool: Vec::new(), budget_ns: BUDGET_NS, period_ns: PERIOD_NS }
    }
}

/// A real-time scheduler: one pool.
#[derive(Debug)]
pub struct Rtds {
    params: Params,
    pool: Mask,
    servers: Vec<Server>,
    /// Who waits, by deadline.
    waiting: Vec<u32>,
    pcpus: Pcpus,
    /// When the replenishments' timer expires, if it is armed.
    replenish_ns: Option<u64>,
    log: Log,
}

impl Rtds {
    /// A scheduler without vCPUs.
    pub fn new(params: Params) -> Rtds {
        let pool = Mask::of(params.cpus, &params.pool);
        let pcpus = Pcpus::new(params.cpus, REPLENISH + 1);
        let (servers, waiting) = (Vec::new(), Vec::new());
        Rtds { params, pool, servers, waiting, pcpus, replenish_ns: None, log: Log::default() }
    }

    /// A vCPU that can run waits: in the queue if it has budget, else for its next period. It interrupts whom it should.
    fn enqueue(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let server = &mut self.servers[entity as usize];
        if server.left_ns == 0 {
            server.state = State::Depleted;
            return self.log.push(now_ns, server.cpu, entity, Kind::Parked);
        }
        server.state = State::Queued;
        let deadline_ns = |entity: u32| self.servers[entity as usize].deadline_ns;
        let at = self.waiting.partition_point(|&other| deadline_ns(other) <= deadline_ns(entity));
        self.waiting.insert(at, entity);
        self.tickle(now_ns, entity, orders);
    }

    /// Interrupts an idle pCPU, its own first; else the current vCPU of the latest deadline, if that is later. A pCPU that
    /// was interrupted already is left to whom it was interrupted for.
    fn tickle(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let server = &self.servers[entity as usize];
        let others = server.allowed.iter().filter(|&cpu| cpu != server.cpu);
        let free = std::iter::once(server.cpu).chain(others).filter(|&cpu| !self.pcpus[cpu].ordered);
        let deadline_ns = |cpu: u32| {
            let current = self.pcpus[cpu].current;
            current.map_or(u64::MAX, |current| self.servers[current as usize].deadline_ns)
        };
        let later = |best, other| if deadline_ns(other) > deadline_ns(best) { other } else { best };
        let (cpu, kind) = match free.reduce(later).filter(|&cpu| deadline_ns(cpu) > server.deadline_ns) {
            Some(cpu) => (cpu, Kind::Tickled),
            None => (server.cpu, Kind::TickleRefused(Refusal::LaterDeadline)),
        };
        self.log.push(now_ns, cpu, entity, kind);
        if kind == Kind::Tickled {
            self.pcpus.order(cpu, orders);
        }
    }

    /// Decides what a pCPU runs.
    fn decide(&mut self, now_ns: u64, cpu: u32, orders: &mut Orders) {
        let current = self.pcpus[cpu].current;
        let may_stay = current.filter(|&current| {
            let server = &mut self.servers[current as usize];
            server.burn(now_ns);
            server.left_ns > 0
        });
        let deadline_ns = |entity: u32| self.servers[entity as usize].deadline_ns;
        let first = self.waiting.iter().copied().find(|&other| self.servers[other as usize].allowed.has(cpu));
        let sooner = |first: &u32| may_stay.is_none_or(|stays| deadline_ns(*first) < deadline_ns(stays));
        let next = first.filter(sooner).or(may_stay);
        if let Some(next) = next.filter(|_| next != current) {
            self.waiting.retain(|&other| other != next);
            let server = &mut self.servers[next as usize];
            (server.state, server.charged_to_ns, server.cpu) = (State::Running, now_ns, cpu);
        }
        let for_ns = next.map(|next| self.servers[next as usize].left_ns);
        self.pcpus.give(now_ns, cpu, next, for_ns, orders);
        if let Some(current) = current.filter(|_| next != current) {
            self.enqueue(now_ns, current, orders);
        }
        self.arm(orders);
    }

    /// Arms the timer for the next end of a period of somebody who runs or waits.
    fn arm(&mut self, orders: &mut Orders) {
        let awake = self.servers.iter().filter(|server| server.state != State::Blocked);
        let next_ns = awake.map(|server| server.deadline_ns).min();
        if next_ns != self.replenish_ns {
            self.replenish_ns = next_ns;
            if let Some(at_ns) = next_ns {
                orders.rearm(REPLENISH, at_ns);
            }
        }
    }

    /// Begins the periods that begin now.
    fn replenish(&mut self, now_ns: u64, orders: &mut Orders) {
        for entity in 0..self.servers.len() as u32 {
            let server = &mut self.servers[entity as usize];
            if server.state == State::Running {
                server.burn(now_ns);
            }
            if server.state == State::Blocked || !server.replenish(now_ns) {
                continue;
            }
            let (state, cpu) = (server.state, server.cpu);
            if state == State::Depleted {
                self.log.push(now_ns, cpu, entity, Kind::Unparked);
            }
            match state {
                State::Running => self.pcpus.order(cpu, orders), // others may have earlier deadlines now
                _ => {
                    self.waiting.retain(|&other| other != entity);
                    self.enqueue(now_ns, entity, orders);
                }
            }
        }
        self.arm(orders);
    }
}

impl Scheduler for Rtds {
    fn add(&mut self, spec: &Spec) -> Entity {
        let entity = u32::try_from(self.servers.len()).expect("vCPUs are numbered by u32");
        let allowed = self.pool.narrowed(&spec.allowed);
        let (budget_ns, period_ns, phase_ns) = match &spec.quota {
            Some(quota) => (quota.quota_ns, quota.period_ns.max(1), quota.phase_ns),
            None => (self.params.budget_ns, self.params.period_ns.max(1), 0),
        };
        let budget_ns = budget_ns.clamp(1, period_ns);
        let cpu = allowed.first().expect("a pool has pCPUs");
        self.servers.push(Server {
            allowed,
            cpu,
            state: State::Blocked,
            budget_ns,
            period_ns,
            deadline_ns: phase_ns,
            left_ns: budget_ns,
            charged_to_ns: 0,
        });
        Entity(entity)
    }

    fn wake(&mut self, now_ns: u64, entity: Entity, _from: Option<Cpu>, orders: &mut Orders) {
        let server = &mut self.servers[entity.0 as usize];
        if server.state == State::Blocked {
            server.replenish(now_ns);
            self.enqueue(now_ns, entity.0, orders);
            self.arm(orders);
        }
    }

    fn block(&mut self, now_ns: u64, cpu: Cpu, _orders: &mut Orders) {
        if let Some(entity) = self.pcpus[cpu.0].current.take() {
            let server = &mut self.servers[entity as usize];
            server.burn(now_ns);
            server.state = State::Blocked;
        }
    }

    fn pick(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) -> Option<Entity> {
        if self.pool.has(cpu.0) && self.pcpus.due(cpu.0) {
            self.decide(now_ns, cpu.0, orders);
        }
        self.running(cpu)
    }

    /// To yield is to give up the rest of the budget.
    fn yield_now(&mut self, now_ns: u64, cpu: Cpu, _orders: &mut Orders) {
        if let Some(current) = self.pcpus[cpu.0].current {
            let server = &mut self.servers[current as usize];
            server.burn(now_ns);
            server.left_ns = 0;
            self.pcpus.make_due(cpu.0);
        }
    }

    fn timer(&mut self, now_ns: u64, number: u32, orders: &mut Orders) {
        if number == REPLENISH {
            if self.replenish_ns == Some(now_ns) {
                self.replenish_ns = None;
                self.replenish(now_ns, orders);
            }
        } else if let Some(cpu) = self.pcpus.expired(now_ns, number) {
            self.pcpus.end_slice(now_ns, cpu, &mut self.log, orders);
        }
    }

    fn tick_ns(&self) -> u64 {
        self.params.period_ns.max(1)
    }

    fn running(&self, cpu: Cpu) -> Option<Entity> {
        self.pcpus[cpu.0].current.map(Entity)
    }

    fn log(&mut self) -> Option<&mut Log> {
        Some(&mut self.log)
    }
}
