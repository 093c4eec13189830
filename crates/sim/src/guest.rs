//! A guest: vCPUs that execute interrupts, softirqs and tasks, under the guest's own scheduler, RCU and allocator.
//!
//! The host calls the guest when a vCPU gets or loses a pCPU ([`Guest::enter`], [`Guest::leave`]) and when timers
//! expire. The guest answers with [`Request`]s and never calls the host.

mod batched_frees;
pub mod block;
pub mod callback;
pub mod costs;
mod deferring;
pub mod env;
pub mod ids;
mod interrupts;
mod invoking;
pub mod io;
mod jiffies;
pub mod latent;
pub mod lock;
pub mod memory;
pub mod network;
mod outstanding;
pub mod pausing;
pub mod rcu;
pub mod rcu_side;
mod run;
mod softirqs;
mod spinning;
pub mod task;
mod task_table;
mod tasks;
#[cfg(test)]
mod tests;
pub mod timers;
pub mod vcpu;

use reprieve_study::scenario::Spinlocks;

use crate::guest::costs::Costs;
use crate::guest::env::Counters;
use crate::guest::ids::{Mode, TaskId};
use crate::guest::io::IoSide;
use crate::guest::jiffies::Jiffies;
use crate::guest::lock::Locks;
use crate::guest::memory::Memory;
use crate::guest::network::Packet;
use crate::guest::rcu_side::RcuSide;
use crate::guest::task::{Kind, Program};
use crate::guest::task_table::TaskTable;
use crate::guest::vcpu::{Level, Presence, Vcpu};
use crate::latency::Latencies;
use crate::queue::{Class, Queue};
use crate::sched::{self, Cpu, Placement};

/// The current time, and where to arm timers.
pub struct Clock<'a> {
    /// Now.
    pub now_ns: u64,
    /// The run's timers.
    pub queue: &'a mut Queue,
    /// Steps of long loops, beyond the cost of a usual event ([`crate::world::World::spent`]).
    pub work: &'a mut u64,
}

/// What a guest asks of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An interrupt waits for this vCPU.
    Kick(usize),
    /// This vCPU is idle.
    Halt(usize),
    /// This vCPU has released its last spinlock.
    Unlocked(usize),
    /// An answer to this request leaves for the network.
    Answer(Packet),
    /// Disk requests are ready.
    Disk,
}

/// The kernel's version, where versions differ in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// Tasks run under CFS. While ksoftirqd is runnable, interrupts leave softirqs to it.
    #[default]
    V6_1,
    /// Tasks run under EEVDF. Interrupts run softirqs whether ksoftirqd is runnable or not (since 6.5).
    V6_12,
}

impl Kernel {
    /// The kernel that a scenario names in `guest.kernel`; 6.1 for any unknown name.
    pub fn named(series: &str) -> Kernel {
        if series == "6.12" { Kernel::V6_12 } else { Kernel::V6_1 }
    }

    /// The version, for reports.
    pub fn version(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
        }
    }

    fn scheduler(self, vcpus: usize, hz: u64) -> Box<dyn Placement> {
        let tunables = sched::Tunables::linux(vcpus, hz);
        match self {
            Kernel::V6_1 => Box::new(sched::cfs::cfs_with(vcpus, &tunables)),
            Kernel::V6_12 => Box::new(sched::eevdf::eevdf_with(vcpus, &tunables)),
        }
    }
}

/// What the guest's kernel does against preempted RCU readers; by default nothing.
#[derive(Clone, Debug, Default)]
pub struct Remedies {
    /// Its slab allocator knows of deferred frees.
    pub slab: Option<latent::Settings>,
    /// Tasks that defer frees too fast wait.
    pub pressure: Option<reprieve_policy::pressure::Settings>,
    /// `synchronize_rcu()` waits for expedited grace periods.
    pub expedites: bool,
    /// RCU's kthread runs before all other tasks of its vCPU.
    pub kthread_prio: bool,
    /// RCU's kthread wakes on a vCPU that is on a pCPU.
    pub places_kthread: bool,
}

/// The parameters of a guest.
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
    /// Its remedies.
    pub remedies: Remedies,
    /// The number of spinlocks.
    pub locks: u32,
    /// How waiters get a spinlock.
    pub discipline: Spinlocks,
    /// When its first tick falls: from 0 to the length of a tick.
    pub tick_phase_ns: u64,
    /// Its clock and its idleness.
    pub idle: Idle,
}

/// How a guest's platform handles timers and idle vCPUs. By default the clock-event device can be set for any time, and
/// the tick stops whenever a vCPU is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// The least time for which the clock-event device can be set (`min_delta_ns` in `/proc/timer_list`).
    pub least_delta_ns: u64,
    /// The tick stays on if a high-resolution timer will end the idle time within a tick, because stopping it would
    /// cost more.
    pub keeps_tick: bool,
}

impl Idle {
    /// A PV guest of Xen with Linux 6.1. Its device takes 100 us (`/proc/timer_list`). In 3 s of a loop that sleeps 1
    /// ms (2,000 times) its tick stopped 277 times, and every tick that fell into a sleep (63 % of them) woke the vCPU.
    pub const XEN_PV: Idle = Idle { least_delta_ns: 100_000, keeps_tick: true };
}

/// A guest.
pub struct Guest {
    kernel: Kernel,
    idle: Idle,
    costs: Costs,
    vcpus: Vec<Vcpu>,
    jiffies: Jiffies,
    tasks: TaskTable,
    locks: Locks,
    /// RCU.
    pub rcu: RcuSide,
    /// Page frames and slabs.
    pub memory: Memory,
    io: IoSide,
    /// An interrupt handler is running. The softirqs that it raises run when it ends.
    in_interrupt: bool,
    /// `synchronize_rcu()` waits for expedited grace periods.
    expedites: bool,
    /// RCU's kthread wakes on a vCPU that is on a pCPU.
    places_kthread: bool,
    /// Interrupts that its vCPUs sent each other.
    ipis: u64,
    counters: Counters,
    requests: Vec<Request>,
}

impl Guest {
    /// A guest whose only tasks are RCU's kthread, and a ksoftirqd and a kernel worker on each vCPU. Nothing runs
    /// before [`Guest::boot`].
    pub fn new(spec: &Spec, memory: Memory, seed: u64, queue: &mut Queue) -> Guest {
        let vcpus = (0..spec.vcpus)
            .map(|_| Vcpu::new(queue.add(Class::Work), queue.add(Class::GuestClock)))
            .collect();
        let mut guest = Guest {
            kernel: spec.kernel,
            idle: spec.idle,
            costs: spec.costs.clone(),
            vcpus,
            jiffies: Jiffies::new(spec.hz, spec.tick_phase_ns),
            tasks: TaskTable::new(spec.kernel.scheduler(spec.vcpus, spec.hz), seed),
            locks: Locks::new(spec.locks, spec.discipline),
            rcu: RcuSide::new(&spec.rcu, &spec.remedies, spec.vcpus),
            memory,
            io: IoSide::default(),
            in_interrupt: false,
            expedites: spec.remedies.expedites,
            places_kthread: spec.remedies.places_kthread,
            ipis: 0,
            counters: Counters::default(),
            requests: Vec::new(),
        };
        let kthread = sched::Spec { urgent: spec.remedies.kthread_prio, ..sched::Spec::default() };
        guest.rcu.gp_kthread = guest.tasks.add(Kind::GpKthread, &kthread);
        for v in 0..spec.vcpus {
            let spec = sched::Spec { allowed: vec![Cpu(v as u32)], ..sched::Spec::default() };
            let ksoftirqd = guest.tasks.add(Kind::Ksoftirqd, &spec);
            guest.tasks.ksoftirqd.push(ksoftirqd);
            let worker = guest.tasks.add(Kind::Kworker, &spec);
            guest.rcu.batched.set_worker(v, worker);
        }
        if spec.rcu.offloads {
            let offload = |v| guest.tasks.add(Kind::Offload(v), &sched::Spec::default());
            guest.rcu.offload = (0..spec.vcpus).map(offload).collect();
        }
        guest
    }

    /// Adds a task, bound to a vCPU or not. It starts when the guest boots.
    pub fn add_program(&mut self, program: Box<dyn Program>, vcpu: Option<usize>) -> TaskId {
        let allowed = vcpu.map(|vcpu| Cpu(vcpu as u32)).into_iter().collect();
        self.tasks.add(Kind::Program(program), &sched::Spec { allowed, ..sched::Spec::default() })
    }

    /// Adds a task of that weight (1024 is nice 0), which these vCPUs may run; none stands for all.
    pub fn add_weighted(&mut self, program: Box<dyn Program>, vcpus: &[usize], weight: u32) -> TaskId {
        let allowed = vcpus.iter().map(|vcpu| Cpu(*vcpu as u32)).collect();
        let spec = sched::Spec { weight, allowed, ..sched::Spec::default() };
        self.tasks.add(Kind::Program(program), &spec)
    }

    /// Makes all tasks but the ksoftirqds runnable.
    pub fn boot(&mut self, clock: &mut Clock<'_>) {
        for task in self.tasks.ids() {
            if !self.tasks.ksoftirqd.contains(&task) {
                self.wake_task(clock, task, None);
            }
        }
    }

    /// Memory of the simulator for callbacks, block requests and latencies.
    pub fn held_bytes(&self) -> u64 {
        let latencies = self.counters.sync_ns.len() * size_of::<u64>()
            + self.counters.latencies.stalls.len() * size_of::<reprieve_study::Span>();
        let block = self.io.disk.as_ref().map_or(0, |io| io.block.held_bytes());
        // 8 bytes for a callback or object, twice: a growing queue takes up to twice its length.
        self.rcu.held() * 16 + (latencies + block) as u64
    }

    /// A vCPU gets a pCPU. It first spends `overhead_ns` of CPU time.
    pub fn enter(&mut self, clock: &mut Clock<'_>, v: usize, overhead_ns: u64) {
        let vcpu = &mut self.vcpus[v];
        debug_assert_eq!(vcpu.presence, Presence::Descheduled);
        vcpu.presence = Presence::Running;
        vcpu.was_away(clock.now_ns, vcpu.current == Some(self.rcu.gp_kthread));
        vcpu.start_clock(clock.now_ns);
        if overhead_ns > 0 {
            vcpu.begin(Level::Overhead, overhead_ns);
        }
        self.told_rcu_descheduled(clock, v, false);
        self.run(clock, v);
    }

    /// A vCPU that still has work loses its pCPU.
    pub fn leave(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.book(clock.now_ns, v);
        let vcpu = &mut self.vcpus[v];
        debug_assert_eq!(vcpu.presence, Presence::Running);
        vcpu.presence = Presence::Descheduled;
        clock.queue.disarm(vcpu.work);
        self.told_rcu_descheduled(clock, v, true);
    }

    /// Only for the counterfactual in which a descheduled vCPU is quiescent.
    fn told_rcu_descheduled(&mut self, clock: &mut Clock<'_>, v: usize, descheduled: bool) {
        self.rcu.state.set_descheduled(clock.now_ns, v, descheduled, &mut self.rcu.effects);
        self.in_interrupt = true;
        self.apply_effects(clock, None);
        self.in_interrupt = false;
    }

    /// A halted vCPU that was kicked competes for a pCPU again.
    pub fn unhalt(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.vcpus[v].unhalt(clock.now_ns);
        self.end_pause(v);
        if self.vcpus[v].current.is_some() {
            // It spins for a lock, and no longer waits of its own accord.
            self.told_rcu_descheduled(clock, v, true);
        }
    }

    /// A running vCPU goes on: an interrupt waits for it, or its present stretch of work is done.
    pub fn go_on(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.book(clock.now_ns, v);
        self.run(clock, v);
    }

    /// A vCPU's clock-event device fires.
    pub fn clock_event(&mut self, v: usize) {
        self.vcpus[v].pending |= vcpu::interrupt::CLOCK;
        self.requests.push(Request::Kick(v));
    }

    /// Accounts the time of a running vCPU and of its task.
    fn book(&mut self, now_ns: u64, v: usize) {
        let vcpu = &mut self.vcpus[v];
        let task_ns = vcpu.book(now_ns);
        if let Some(task) = vcpu.current {
            self.tasks[task].exec_ns += task_ns;
        }
    }

    /// Whether it has requests for its host.
    #[inline]
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Takes the guest's requests, oldest first.
    pub fn take_requests(&mut self, into: &mut Vec<Request>) {
        into.append(&mut self.requests);
    }

    /// Whether the vCPU's current task holds a spinlock. A lock that it only waits for does not count.
    pub fn holds_lock(&self, v: usize) -> bool {
        let vcpu = &self.vcpus[v];
        let waited_for = u32::from(vcpu.spins_for.is_some());
        vcpu.current.is_some_and(|task| self.tasks[task].locks > waited_for)
    }

    /// Whether the marks of its readers say that this vCPU is within a read-side section, or it runs RCU's kthread. A
    /// stretch in the kernel without a preemption point counts as one section; waiting for a spinlock does not.
    pub fn is_marked(&self, v: usize) -> bool {
        let vcpu = &self.vcpus[v];
        let Some(task) = vcpu.current else { return false };
        let is_in_stretch =
            vcpu.mode == Mode::Kernel && vcpu.left(Level::Task) > 0 && vcpu.spins_for.is_none();
        task == self.rcu.gp_kthread || self.tasks[task].runs_on || is_in_stretch || self.holds_lock(v)
    }

    /// The vCPUs.
    pub fn vcpus(&self) -> &[Vcpu] {
        &self.vcpus
    }

    /// What the workload counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Measures latencies from now on, `most` of them.
    pub fn measure_latencies(&mut self, most: u64) {
        self.counters.latencies = Latencies::measured(most);
    }

    /// The latencies, for a client outside of the guest.
    pub fn latencies_mut(&mut self) -> &mut Latencies {
        &mut self.counters.latencies
    }

    /// The kernel's count of ticks.
    pub fn ticks(&self) -> u64 {
        self.jiffies.now
    }

    /// The vCPU on which RCU's kthread runs or waits to run.
    pub fn ready_gp_kthread(&self) -> Option<usize> {
        self.tasks.place(self.rcu.gp_kthread)
    }

    /// Whether callbacks of that vCPU could be invoked already, and its tick, which starts that, is overdue; or they are
    /// being invoked.
    pub fn could_free(&self, now_ns: u64, v: usize) -> bool {
        let vcpu = &self.vcpus[v];
        let is_overdue = !vcpu.tick_stopped && vcpu.next_tick_ns <= now_ns;
        let rcu = &self.rcu.state;
        is_overdue && rcu.has_due_callbacks(v) || rcu.has_ready_callbacks(v)
    }

    /// Interrupts that its vCPUs have sent each other.
    pub fn ipis(&self) -> u64 {
        self.ipis
    }

    /// Interrupts a vCPU for another one.
    fn send_ipi(&mut self, v: usize, interrupt: u8) {
        self.ipis += 1;
        self.vcpus[v].pending |= interrupt;
        self.requests.push(Request::Kick(v));
    }

    /// CPU time of RCU's kthread.
    pub fn gp_kthread_ns(&self) -> u64 {
        self.tasks[self.rcu.gp_kthread].exec_ns
    }

    /// Checks the invariants between events.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.rcu.check()?;
        self.io.disk.as_ref().map_or(Ok(()), |io| io.block.check())?;
        self.memory.check()
    }
}
