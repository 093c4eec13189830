//! Xen's credit scheduler (`sched=credit`), with the three mechanisms that make its tail latency.
//!
//! Every pCPU has a queue, ordered by priority: BOOST, UNDER, OVER; first come first among equals. A vCPU burns credit
//! while it runs. Each slice a pool's accounting hands out credit, and a vCPU in debt is OVER, another one UNDER. A wake
//! makes an UNDER vCPU BOOST until a tick finds it running. Decisions are taken when a slice ends, when a vCPU blocks, and
//! when a wake interrupts; never at a tick.
//!
//! | part | what it does |
//! |---|---|
//! | [`params`] | what can be tuned; versions, fixes |
//! | [`vcpu`] | a vCPU, its credit and priority |
//! | `accounting` | ticks, accounting, active lists, caps and parking |
//! | `wake` | BOOST, and whom a wake interrupts |
//! | `balance` | migration and stealing |
//! | `schedule` | decisions |
//!
//! Invariants: a vCPU is in exactly one state; a queued one is in the queue of its pCPU, which it may use; a pCPU is among
//! the idlers if its last decision found nothing; a domain is on the active list if it has an active vCPU.
//!
//! Left out: NUMA nodes, hyper-threads, soft affinity, and domains that are paused.
//!
//! Source: behaviour of Xen 4.5 to 4.17; xen-devel, May 2016, "Bugs existing in Xen's credit scheduler cause long tail
//! latency issues".

mod accounting;
mod balance;
#[cfg(test)]
mod check;
mod interrupt;
pub mod params;
mod schedule;
#[cfg(test)]
mod tests;
pub mod vcpu;
mod wake;

pub use params::{Fixes, Params, Version};

use super::xen::{Kind, Log, Mask, Pcpus};
use super::{Cpu, Entity, Orders, Scheduler, Spec};
use accounting::Domain;
use interrupt::{ACCOUNTING_WORK_NS, Interrupt, TICK_WORK_NS};
use vcpu::{State, Vcpu};

/// Number of the accounting's timer; then follow those of the ticks and of the decisions, one each a pCPU.
const ACCOUNTING: u32 = 0;

/// Why a vCPU is put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// Something happened that it waited for, as seen on that pCPU.
    Event(Option<Cpu>),
    /// It was marked, and left its pCPU.
    Migration,
    /// Its cap leaves credit again.
    Unparked,
}

/// The vCPUs that wait for a pCPU.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<u32>,
    /// The last accounting after which it was brought into order.
    epoch: u64,
}

impl Queue {
    /// Before the first of lower priority; one that yields lets one such go first.
    fn insert(&mut self, vcpus: &[Vcpu], entity: u32) {
        let priority = |entity: u32| vcpus[entity as usize].priority();
        let lower = self.waiting.iter().position(|&other| priority(other) < priority(entity));
        let at = lower.map_or(self.waiting.len(), |at| at + vcpus[entity as usize].yields as usize);
        self.waiting.insert(at, entity);
    }

    fn remove(&mut self, entity: u32) {
        self.waiting.retain(|&other| other != entity);
    }
}

/// A credit scheduler: one pool.
#[derive(Debug)]
pub struct Credit {
    params: Params,
    pool: Mask,
    vcpus: Vec<Vcpu>,
    domains: Vec<Domain>,
    /// Domains with active vCPUs; who came last stands first.
    active: Vec<usize>,
    queues: Vec<Queue>,
    pcpus: Pcpus,
    /// How many vCPUs started on each pCPU.
    started_on: Vec<u32>,
    idlers: Mask,
    /// The pCPU that a wake interrupted last; the search for an idle one goes on behind it.
    last_tickled: u32,
    /// Accountings so far.
    epoch: u64,
    /// Sum of the active vCPUs' credit after the last accounting.
    balance: i64,
    /// When the next accounting is, once anything was woken.
    accounting_ns: u64,
    /// The last timer interrupt of each pCPU.
    interrupts: Vec<Interrupt>,
    started: bool,
    /// Woken vCPUs that have stored BOOST and not yet looked at their priority again.
    racing: Vec<u32>,
    log: Log,
}

impl Credit {
    /// A scheduler without vCPUs.
    pub fn new(params: Params) -> Credit {
        let pool = Mask::of(params.cpus, &params.pool);
        Credit {
            idlers: pool.clone(),
            pool,
            vcpus: Vec::new(),
            domains: Vec::new(),
            active: Vec::new(),
            queues: (0..params.cpus).map(|_| Queue::default()).collect(),
            pcpus: Pcpus::new(params.cpus, ACCOUNTING + 1 + params.cpus),
            started_on: vec![0; params.cpus as usize],
            last_tickled: params.cpus - 1,
            epoch: 0,
            balance: 0,
            accounting_ns: 0,
            interrupts: vec![Interrupt::default(); params.cpus as usize],
            started: false,
            racing: Vec::new(),
            log: Log::default(),
            params,
        }
    }

    /// The domain of that number, made if it is new. Weight and cap are those of its first vCPU.
    fn domain(&mut self, spec: &Spec) -> usize {
        let same = |domain: &Domain| spec.domain.number.is_some() && domain.number == spec.domain.number;
        self.domains.iter().position(same).unwrap_or_else(|| {
            self.domains.push(Domain {
                number: spec.domain.number,
                weight: spec.weight.max(1).into(),
                cap_percent: spec.domain.cap_percent.into(),
                active: Vec::new(),
            });
            self.domains.len() - 1
        })
    }

    /// Starts the accounting and the ticks.
    fn start(&mut self, now_ns: u64, orders: &mut Orders) {
        self.started = true;
        self.accounting_ns = now_ns + self.params.accounting_phase_ns.max(1);
        orders.arm.push((ACCOUNTING, self.accounting_ns));
        for cpu in self.pool.iter() {
            let phase_ns = self.params.tick_phases_ns.get(cpu as usize).copied();
            let at_ns = now_ns + phase_ns.unwrap_or(self.params.tick_ns()).max(1);
            orders.arm.push((ACCOUNTING + 1 + cpu, at_ns));
        }
    }
}

/// Its ticks are timers of its own, because they have a phase for each pCPU.
impl Scheduler for Credit {
    fn add(&mut self, spec: &Spec) -> Entity {
        let entity = u32::try_from(self.vcpus.len()).expect("vCPUs are numbered by u32");
        let domain = self.domain(spec);
        let allowed = self.pool.narrowed(&spec.allowed);
        // It starts where the fewest are.
        let cpu = allowed.iter().min_by_key(|&cpu| self.started_on[cpu as usize]).expect("a pool has pCPUs");
        self.started_on[cpu as usize] += 1;
        self.vcpus.push(Vcpu { domain, allowed, cpu, ..Vcpu::default() });
        Entity(entity)
    }

    fn wake(&mut self, now_ns: u64, entity: Entity, from: Option<Cpu>, orders: &mut Orders) {
        if !self.started {
            self.start(now_ns, orders);
        }
        let vcpu = &mut self.vcpus[entity.0 as usize];
        if vcpu.state != State::Blocked {
            return;
        }
        self.log.push(now_ns, vcpu.cpu, entity.0, Kind::Woken);
        if vcpu.parked {
            vcpu.state = State::Parked;
        } else {
            self.enqueue(now_ns, entity.0, Wake::Event(from), orders);
        }
    }

    fn block(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) {
        let Some(entity) = self.pcpus[cpu.0].current.take() else { return };
        let vcpu = &mut self.vcpus[entity as usize];
        vcpu.leave(now_ns, State::Blocked);
        self.log.push(now_ns, cpu.0, entity, Kind::Blocked);
        if vcpu.migrating {
            self.migrate(now_ns, entity, orders);
        }
    }

    fn pick(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) -> Option<Entity> {
        if self.pool.has(cpu.0) && self.pcpus.due(cpu.0) {
            self.decide(now_ns, cpu.0, orders);
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
        let first_pcpu = ACCOUNTING + 1 + self.params.cpus;
        let cpu = match number {
            ACCOUNTING => self.pool.first(),
            tick if tick < first_pcpu => Some(tick - ACCOUNTING - 1),
            pcpu => self.pcpus.expired(now_ns, pcpu),
        };
        let Some(cpu) = cpu else { return };
        let interrupt = &mut self.interrupts[cpu as usize];
        if let Some(at_ns) = interrupt.put_off(now_ns) {
            if number == ACCOUNTING {
                self.accounting_ns = at_ns;
            }
            if number < first_pcpu {
                orders.arm.push((number, at_ns));
            } else {
                self.pcpus.set_timer(at_ns, cpu, orders);
            }
            return;
        }
        match number {
            ACCOUNTING => {
                self.accounting_ns = interrupt.after(ACCOUNTING_WORK_NS) + self.params.slice_ns;
                orders.arm.push((ACCOUNTING, self.accounting_ns));
                self.account(now_ns, orders);
            }
            tick if tick < first_pcpu => {
                orders.arm.push((number, interrupt.after(TICK_WORK_NS) + self.params.tick_ns()));
                self.sample(now_ns, cpu, orders);
            }
            _ => self.pcpus.end_slice(now_ns, cpu, &mut self.log, orders),
        }
    }

    fn tick_ns(&self) -> u64 {
        self.params.tick_ns()
    }

    fn running(&self, cpu: Cpu) -> Option<Entity> {
        self.pcpus[cpu.0].current.map(Entity)
    }

    fn log(&mut self) -> Option<&mut Log> {
        Some(&mut self.log)
    }
}
