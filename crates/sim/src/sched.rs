//! CPU schedulers. A host uses one for its threads on pCPUs, a guest uses one for its tasks on vCPUs.
//!
//! A scheduler decides and nothing else: it holds run queues and accounts time, and answers through [`Orders`]. It
//! never runs, stops or charges anything itself. Who uses it (the dispatcher) keeps this contract:
//! - an entity is *running* between the [`Scheduler::pick`] that returned it and the next call of `pick` or `block` for
//!   that CPU; it is *runnable* while queued, else *blocked*; new entities are blocked;
//! - after each call the dispatcher calls `pick` for every CPU in [`Orders::resched`], when that CPU can switch;
//! - `tick` is called for a CPU every [`Scheduler::tick_ns`] of its own grid while [`Scheduler::needs_tick`] says so;
//! - `timer(n)` is called at the time that [`Orders::arm`] last named for `n`.
//!
//! | part | what it is |
//! |---|---|
//! | [`fair`] | what Linux's two fair schedulers share: runqueues, placement, balancing, bandwidth |
//! | [`eevdf`] | Linux 6.6 and later |
//! | [`cfs`] | Linux before 6.6 |
//! | [`machine`] | a fair scheduler alone, without guests |
//! | [`tunables`] | their constants |
//! | [`credit`] | Xen's credit scheduler, with its bugs and their fixes |
//! | [`credit2`] | Xen's default since 4.12 |
//! | [`rtds`] | Xen's real-time scheduler: earliest deadline first |
//! | [`xen`] | what these share |

pub mod cfs;
pub mod credit;
pub mod credit2;
pub mod eevdf;
pub mod fair;
pub mod machine;
pub mod rtds;
pub mod tunables;
pub mod xen;

#[cfg(test)]
mod tests;

pub use tunables::Tunables;

/// A CPU of the level at which the scheduler works (a pCPU, or a guest's vCPU), from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(pub u32);

/// Something that is scheduled (a host's thread, or a guest's task), from 0 in the order in which it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity(pub u32);

/// CPU bandwidth of one entity (a cgroup with this entity alone).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time that it may have in each period.
    pub quota_ns: u64,
    /// Length of a period.
    pub period_ns: u64,
    /// When the first period starts; periods follow each other without a gap.
    pub phase_ns: u64,
    /// Unused CPU time that it may have later, at most. Only under Linux's schedulers.
    pub burst_ns: u64,
}

/// What a scheduler must know of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Share of the CPU relative to others: 1024 is nice 0.
    pub weight: u32,
    /// CPUs that it may run on; empty for all.
    pub allowed: Vec<Cpu>,
    /// Its bandwidth, if limited.
    pub quota: Option<Quota>,
    /// The VM that it belongs to. Only Xen's schedulers read it.
    pub domain: xen::DomainSpec,
}

impl Default for Spec {
    fn default() -> Self {
        Spec { weight: 1024, allowed: Vec::new(), quota: None, domain: xen::DomainSpec::default() }
    }
}

/// What a scheduler wants done. The dispatcher hands in one, empties it after each call, and reuses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// CPUs on which `pick` should be called soon.
    pub resched: Vec<Cpu>,
    /// Timers of the scheduler to be armed (number, time), replacing what that number was armed for.
    pub arm: Vec<(u32, u64)>,
    /// CPUs for which [`Scheduler::needs_tick`] became true: their ticks start. (A wake does not say otherwise on
    /// which CPU the entity waits, and asking every CPU is too slow with 1000 of them.)
    pub ticks: Vec<Cpu>,
}

impl Orders {
    /// Arms a timer, in place of what the same timer was to be armed for. (A dispatcher may arm them in any order.)
    pub fn rearm(&mut self, number: u32, at_ns: u64) {
        self.arm.retain(|armed| armed.0 != number);
        self.arm.push((number, at_ns));
    }
}

/// A CPU scheduler. What only some can do besides is in [`Placement`], [`Pausing`], [`Boosting`] and
/// [`Scheduler::log`].
pub trait Scheduler: std::fmt::Debug {
    /// A new entity, blocked.
    fn add(&mut self, spec: &Spec) -> Entity;
    /// A blocked entity becomes runnable; the scheduler places it on a CPU and says whether that should switch.
    /// Nothing happens if it is not blocked. `from` is the CPU that wakes it, if one does.
    fn wake(&mut self, now_ns: u64, entity: Entity, from: Option<Cpu>, orders: &mut Orders);
    /// The entity that runs on this CPU blocks. The dispatcher calls `pick` next.
    fn block(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders);
    /// Puts what runs on this CPU back into its queue (unless it blocked or is throttled) and decides what runs next.
    fn pick(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders) -> Option<Entity>;
    /// The scheduler's tick on that CPU. One that needs no ticks does nothing.
    fn tick(&mut self, _now_ns: u64, _cpu: Cpu, _orders: &mut Orders) {}
    /// What runs on this CPU gives way to others; it stays runnable. The dispatcher calls `pick` next.
    fn yield_now(&mut self, now_ns: u64, cpu: Cpu, orders: &mut Orders);
    /// One of the scheduler's own timers expired.
    fn timer(&mut self, now_ns: u64, number: u32, orders: &mut Orders);
    /// Time between ticks.
    fn tick_ns(&self) -> u64;
    /// Whether ticks on that CPU can decide anything now. What `pick`, `wake` or `timer` did may change it.
    fn needs_tick(&self, _cpu: Cpu) -> bool {
        false
    }
    /// What runs on that CPU.
    fn running(&self, cpu: Cpu) -> Option<Entity>;
    /// How vCPUs pause under it, if it counts pauses apart from sleeps.
    fn pausing(&mut self) -> Option<&mut dyn Pausing> {
        None
    }
    /// How single entities are let run before all others under it, if it can do that.
    fn boosting(&mut self) -> Option<&mut dyn Boosting> {
        None
    }
    /// Where it records why it decides as it does, if it can.
    fn log(&mut self) -> Option<&mut xen::Log> {
        None
    }
}

/// A scheduler that says where an entity is, and lets its affinity change: what a guest needs of the scheduler of its tasks.
pub trait Placement: Scheduler {
    /// The CPU on which the entity runs or waits; none if it is blocked or throttled.
    fn place(&self, entity: Entity) -> Option<Cpu>;
    /// From now on the entity may run on these CPUs alone; empty for all. One that waits elsewhere moves at once. One that
    /// runs elsewhere moves at the next `pick` for its CPU, which is ordered.
    fn set_allowed(&mut self, now_ns: u64, entity: Entity, allowed: &[Cpu], orders: &mut Orders);
}

/// A scheduler under which a vCPU can pause of its own accord and save its share of CPU time meanwhile.
pub trait Pausing {
    /// Like [`Scheduler::block`], but the entity still counts as load of its CPU. When it wakes it may be behind the others
    /// by up to `keeps_ns` (CFS; EEVDF ignores that limit).
    fn pause(&mut self, now_ns: u64, cpu: Cpu, keeps_ns: u64, orders: &mut Orders);
    /// By how much virtual time (ns) the entity is behind the average of its CPU; above 0 it is owed CPU time.
    fn lag_ns(&mut self, now_ns: u64, entity: Entity) -> i64;
    /// The entity, if it waits, runs next on its CPU as far as fairness allows (CFS; EEVDF ignores it).
    fn favour(&mut self, now_ns: u64, entity: Entity, orders: &mut Orders);
}

/// A scheduler under which single entities can be let run before all others for a while, also beyond their quota.
pub trait Boosting {
    /// From now on the entity runs before all others of its CPU whenever it has work. The time is charged to it as ever.
    fn boost(&mut self, now_ns: u64, entity: Entity, orders: &mut Orders);
    /// It competes like any other again.
    fn end_boost(&mut self, now_ns: u64, entity: Entity, orders: &mut Orders);
    /// CPU time that it has had beyond what it has a right to: beyond its quota, or ahead of the others of its CPU (virtual
    /// time, ns), whichever is more.
    fn debt_ns(&mut self, now_ns: u64, entity: Entity) -> u64;
}
