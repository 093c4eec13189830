//! A guest: vCPUs that execute interrupts, softirqs and tasks, under the guest's own scheduler, RCU and allocator.
//!
//! The host tells it when a vCPU gets and loses a pCPU ([`Guest::enter`], [`Guest::leave`]) and when timers expire; it
//! answers with [`Request`]s. It never calls the host, so data flows one way.

mod batched_frees;
pub mod block;
pub mod callback;
pub mod costs;
pub mod env;
pub mod ids;
mod interrupts;
pub mod io;
pub mod lock;
pub mod memory;
pub mod network;
pub mod pausing;
pub mod rcu;
mod run;
mod softirqs;
mod spinning;
pub mod task;
mod tasks;
#[cfg(test)]
mod tests;
pub mod timers;
pub mod vcpu;

use crate::guest::batched_frees::BatchedFrees;
use crate::guest::costs::Costs;
use crate::guest::env::Counters;
use crate::guest::ids::TaskId;
use crate::guest::io::IoSide;
use crate::guest::lock::{Discipline, Lock, SpinLock};
use crate::guest::memory::Memory;
use crate::guest::network::{Network, Packet};
use crate::guest::rcu::{Effects, Rcu};
use crate::guest::task::{Kind, Program, Task};
use crate::guest::vcpu::{Level, Presence, Vcpu};
use crate::latency::Latencies;
use crate::queue::{Class, Queue};
use crate::random::Stream;
use crate::sched::{self, Cpu, Orders, Placement};

/// The time, and where to say what happens later.
pub struct Clock<'a> {
    /// Now.
    pub now_ns: u64,
    /// The run's timers.
    pub queue: &'a mut Queue,
    /// Work that was done beyond that of an event of usual size ([`crate::world::World::spent`]).
    pub work: &'a mut u64,
}

/// What a guest wants of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An interrupt waits for this vCPU.
    Kick(usize),
    /// This vCPU is idle.
    Halt(usize),
    /// This vCPU holds no spinlock any more.
    Unlocked(usize),
    /// An answer to this request leaves for the network.
    Answer(Packet),
    /// Requests leave for the disk.
    Disk,
}

/// Which kernel it runs, as far as the model tells them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// Its tasks run under CFS, and while ksoftirqd is runnable interrupts leave softirqs to it.
    #[default]
    V6_1,
    /// Its tasks run under EEVDF. Interrupts run softirqs whether ksoftirqd is runnable or not (as since 6.5).
    V6_12,
}

impl Kernel {
    /// As a scenario names it (`guest.kernel`); 6.1 for any other name.
    pub fn named(series: &str) -> Kernel {
        if series == "6.12" { Kernel::V6_12 } else { Kernel::V6_1 }
    }

    /// Its version, for people.
    pub fn version(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
        }
    }

    fn scheduler(self, vcpus: usize, hz: u64) -> Box<dyn Placement> {
        match self {
            Kernel::V6_1 => Box::new(sched::cfs::cfs(vcpus, hz)),
            Kernel::V6_12 => {
                let tunables = sched::Tunables { run_to_parity: true, ..sched::Tunables::linux(vcpus, hz) };
                Box::new(sched::eevdf::eevdf_with(vcpus, &tunables))
            }
        }
    }
}

/// What a guest is made of.
pub struct Spec {
    /// Its kernel.
    pub kernel: Kernel,
    /// Virtual CPUs.
    pub vcpus: usize,
    /// Timer ticks a second.
    pub hz: u64,
    /// CPU costs.
    pub costs: Costs,
    /// RCU's parameters.
    pub rcu: rcu::Params,
    /// Spinlocks.
    pub locks: u32,
    /// How their waiters get them.
    pub discipline: Discipline,
    /// When its ticks fall, from 0 to a tick.
    pub tick_phase_ns: u64,
    /// Its clock and its idleness.
    pub idle: Idle,
}

/// What a guest's platform makes of timers and idleness. The default is a device that can be set for any time, and a tick
/// that stops whenever a vCPU idles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// The clock-event device is never set for sooner than so long from now (`min_delta_ns` in `/proc/timer_list`).
    pub least_delta_ns: u64,
    /// The tick goes on in an idleness that a high-resolution timer will end within a tick: stopping it costs more than it
    /// saves.
    pub keeps_tick: bool,
}

impl Idle {
    /// A PV guest of Xen, Linux 6.1: its device takes 100 us, as `/proc/timer_list` says; and in 3 s of a loop that sleeps
    /// 1 ms (2,000 times) its tick was stopped 277 times, and all ticks that fell into a sleep, 63 % of them, woke the vCPU.
    pub const XEN_PV: Idle = Idle { least_delta_ns: 100_000, keeps_tick: true };
}

/// A guest.
pub struct Guest {
    kernel: Kernel,
    tick_ns: u64,
    tick_phase_ns: u64,
    idle: Idle,
    costs: Costs,
    vcpus: Vec<Vcpu>,
    tasks: Vec<Task>,
    streams: Vec<Stream>,
    scheduler: Box<dyn Placement>,
    orders: Orders,
    /// RCU.
    pub rcu: Rcu,
    effects: Effects,
    /// Page frames and slabs.
    pub memory: Memory,
    locks: Vec<SpinLock>,
    discipline: Discipline,
    jiffies: u64,
    /// The vCPU that counts jiffies; none while all are idle.
    timekeeper: Option<usize>,
    gp_kthread: TaskId,
    ksoftirqd: Vec<TaskId>,
    barrier: tasks::Barrier,
    batched: BatchedFrees,
    network: Network,
    io: Option<Box<IoSide>>,
    wakes: Vec<TaskId>,
    /// Whether an interrupt handler runs right now: what it raises is served when it ends.
    in_interrupt: bool,
    counters: Counters,
    requests: Vec<Request>,
    seed: u64,
}

impl Guest {
    /// A guest with RCU's kthread and its ksoftirqds, and no other tasks. Nothing runs before [`Guest::boot`].
    pub fn new(spec: &Spec, memory: Memory, seed: u64, queue: &mut Queue) -> Guest {
        let vcpus = (0..spec.vcpus)
            .map(|_| Vcpu::new(queue.add(Class::Work), queue.add(Class::GuestClock)))
            .collect();
        let mut guest = Guest {
            kernel: spec.kernel,
            tick_ns: 1_000_000_000 / spec.hz,
            tick_phase_ns: spec.tick_phase_ns,
            idle: spec.idle,
            costs: spec.costs.clone(),
            vcpus,
            tasks: Vec::new(),
            streams: Vec::new(),
            scheduler: spec.kernel.scheduler(spec.vcpus, spec.hz),
            orders: Orders::default(),
            rcu: Rcu::new(&spec.rcu, spec.vcpus),
            effects: Effects::default(),
            memory,
            locks: vec![SpinLock::default(); spec.locks as usize],
            discipline: spec.discipline,
            jiffies: 0,
            timekeeper: None,
            gp_kthread: TaskId(0),
            ksoftirqd: Vec::new(),
            barrier: tasks::Barrier::default(),
            batched: BatchedFrees::new(spec.hz, spec.vcpus),
            network: Network::default(),
            io: None,
            wakes: Vec::new(),
            in_interrupt: false,
            counters: Counters::default(),
            requests: Vec::new(),
            seed,
        };
        (0..spec.vcpus).for_each(|v| guest.rcu.idle_enter(v));
        guest.gp_kthread = guest.add_task(Kind::GpKthread, &sched::Spec::default());
        for vcpu in 0..spec.vcpus {
            let spec = sched::Spec { allowed: vec![Cpu(vcpu as u32)], ..sched::Spec::default() };
            let task = guest.add_task(Kind::Ksoftirqd, &spec);
            guest.ksoftirqd.push(task);
            let worker = guest.add_task(Kind::Kworker, &spec);
            guest.batched.set_worker(vcpu, worker);
        }
        guest
    }

    fn add_task(&mut self, kind: Kind, spec: &sched::Spec) -> TaskId {
        let entity = self.scheduler.add(spec);
        self.streams.push(Stream::new(self.seed, "task", self.tasks.len() as u64));
        self.tasks.push(Task::new(kind));
        TaskId(entity.0)
    }

    /// Adds a task, bound to a vCPU or not. It starts when the guest boots.
    pub fn add_program(&mut self, program: Box<dyn Program>, vcpu: Option<usize>) -> TaskId {
        let allowed = vcpu.map(|vcpu| Cpu(vcpu as u32)).into_iter().collect();
        self.add_task(Kind::Program(program), &sched::Spec { allowed, ..sched::Spec::default() })
    }

    /// Adds a task of that weight (1024 is nice 0), bound to a vCPU.
    pub fn add_weighted(&mut self, program: Box<dyn Program>, vcpu: usize, weight: u32) -> TaskId {
        let spec = sched::Spec { weight, allowed: vec![Cpu(vcpu as u32)], ..sched::Spec::default() };
        self.add_task(Kind::Program(program), &spec)
    }

    /// Makes all tasks but the ksoftirqds runnable.
    pub fn boot(&mut self, clock: &mut Clock<'_>) {
        for index in 0..self.tasks.len() {
            if !self.ksoftirqd.contains(&TaskId(index as u32)) {
                self.wake_task(clock, TaskId(index as u32), None);
            }
        }
    }

    /// Callbacks, and objects of `kfree_rcu()`, that wait for a grace period.
    pub fn backlog(&self) -> u64 {
        self.rcu.backlog_total() + self.batched.backlog()
    }

    /// Memory of this process for what waits for grace periods, for requests of the block layer, and for latencies kept.
    pub fn held_bytes(&self) -> u64 {
        let latencies = self.counters.sync_ns.len() * size_of::<u64>()
            + self.counters.latencies.stalls.len() * size_of::<reprieve_study::Span>();
        let block = self.io.as_ref().map_or(0, |io| io.block.held_bytes());
        // A callback, or an object twice: a queue that grows takes up to twice its length.
        self.backlog() * 16 + (latencies + block) as u64
    }

    /// A vCPU gets a pCPU. `overhead_ns` of CPU time pass before it goes on.
    pub fn enter(&mut self, clock: &mut Clock<'_>, v: usize, overhead_ns: u64) {
        let vcpu = &mut self.vcpus[v];
        debug_assert_eq!(vcpu.presence, Presence::Descheduled);
        vcpu.presence = Presence::Running;
        vcpu.was_away(clock.now_ns, vcpu.current == Some(self.gp_kthread));
        vcpu.start_clock(clock.now_ns);
        if overhead_ns > 0 {
            vcpu.begin(Level::Overhead, overhead_ns);
        }
        self.told_rcu_descheduled(clock, v, false);
        self.run(clock, v);
    }

    /// A vCPU with work loses its pCPU.
    pub fn leave(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.book(clock.now_ns, v);
        let vcpu = &mut self.vcpus[v];
        debug_assert_eq!(vcpu.presence, Presence::Running);
        vcpu.presence = Presence::Descheduled;
        clock.queue.disarm(vcpu.work);
        self.told_rcu_descheduled(clock, v, true);
    }

    /// Matters in the counterfactual alone in which descheduled vCPUs are quiescent.
    fn told_rcu_descheduled(&mut self, clock: &mut Clock<'_>, v: usize, descheduled: bool) {
        self.rcu.set_descheduled(clock.now_ns, v, descheduled, &mut self.effects);
        self.in_interrupt = true;
        self.apply_effects(clock, None);
        self.in_interrupt = false;
    }

    /// A halted vCPU that was kicked competes for a pCPU from now on.
    pub fn unhalt(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.vcpus[v].unhalt(clock.now_ns);
        self.end_pause(v);
        if self.vcpus[v].current.is_some() {
            // It waits for a spinlock, no longer of its own will.
            self.told_rcu_descheduled(clock, v, true);
        }
    }

    /// A running vCPU takes the interrupts that wait for it.
    pub fn interrupt(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.book(clock.now_ns, v);
        self.run(clock, v);
    }

    /// A vCPU's present stretch of work is done.
    pub fn work_done(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.book(clock.now_ns, v);
        self.run(clock, v);
    }

    /// A vCPU's clock-event device fires.
    pub fn clock_event(&mut self, _clock: &mut Clock<'_>, v: usize) {
        self.vcpus[v].pending |= vcpu::interrupt::CLOCK;
        self.requests.push(Request::Kick(v));
    }

    /// Books a running vCPU's time, and its task's.
    fn book(&mut self, now_ns: u64, v: usize) {
        let vcpu = &mut self.vcpus[v];
        let task_ns = vcpu.book(now_ns);
        if let Some(task) = vcpu.current {
            self.tasks[task.0 as usize].exec_ns += task_ns;
        }
    }

    /// Whether it wants anything of its host.
    #[inline]
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Takes the guest's requests, oldest first.
    pub fn take_requests(&mut self, into: &mut Vec<Request>) {
        into.append(&mut self.requests);
    }

    /// Whether the vCPU's current task holds a spinlock. One that it only waits for does not count.
    pub fn holds_lock(&self, v: usize) -> bool {
        let vcpu = &self.vcpus[v];
        let waited_for = u32::from(vcpu.spins_for.is_some());
        vcpu.current.is_some_and(|task| self.tasks[task.0 as usize].locks > waited_for)
    }

    /// The vCPUs.
    pub fn vcpus(&self) -> &[Vcpu] {
        &self.vcpus
    }

    /// What the workload counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Latencies from now on: at most so many.
    pub fn measure_latencies(&mut self, most: u64) {
        self.counters.latencies = Latencies::measured(most);
    }

    /// What the workload counts, for those who count for it outside of the guest.
    pub fn latencies_mut(&mut self) -> &mut Latencies {
        &mut self.counters.latencies
    }

    /// CPU time of RCU's kthread.
    pub fn gp_kthread_ns(&self) -> u64 {
        self.tasks[self.gp_kthread.0 as usize].exec_ns
    }

    /// Checks what must hold at any time between events.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let counters = &self.counters;
        let waiting = self.rcu.backlog_total();
        if counters.queued != counters.invoked + waiting {
            return Err(format!(
                "{} callbacks were queued and {} invoked, but {waiting} wait",
                counters.queued, counters.invoked
            ));
        }
        self.io.as_ref().map_or(Ok(()), |io| io.block.check())?;
        self.memory.check()
    }

    fn lock_mut(&mut self, lock: Lock) -> &mut SpinLock {
        &mut self.locks[lock.0 as usize]
    }
}
