//! One vCPU as the guest sees it: what it executes, at which level, and where its time went.
//!
//! Work at a higher level interrupts lower ones, which go on where they were: an interrupt interrupts a softirq,
//! which interrupts a task. While the vCPU is descheduled nothing advances, and interrupts wait.

use crate::guest::ids::{Mode, TaskId};
use crate::guest::lock::Lock;
use crate::guest::timers::Timers;
use crate::queue::Timer;

/// Where a stretch of work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The current task.
    Task = 0,
    /// Softirqs.
    Soft = 1,
    /// An interrupt.
    Hard = 2,
    /// Overhead that nothing interrupts: a switch, or cold caches after the vCPU was away.
    Overhead = 3,
}

/// Whether the vCPU's thread runs on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// On a pCPU.
    Running,
    /// Has work and is not on a pCPU.
    Descheduled,
    /// Idle: waits for an interrupt.
    Halted,
}

/// Interrupts that wait to be taken, as bits.
pub mod interrupt {
    /// The clock: tick and high-resolution timers.
    pub const CLOCK: u8 = 1;
    /// Another vCPU wants this one to schedule.
    pub const RESCHEDULE: u8 = 2;
    /// An expedited grace period asks for a quiescent state.
    pub const EXPEDITED: u8 = 4;
    /// `rcu_barrier()` wants its callback queued.
    pub const BARRIER: u8 = 8;
    /// An event channel: the network device has packets.
    pub const EVENT: u8 = 16;
    /// The disk is done with requests.
    pub const BLOCK: u8 = 32;
    /// A grace period asks for a report.
    pub const ASK: u8 = 64;
}

/// Softirqs that wait, as bits.
pub mod softirq {
    /// Timers of the wheel.
    pub const TIMER: u8 = 1;
    /// RCU's core and its callbacks.
    pub const RCU: u8 = 2;
    /// Packets of the network device.
    pub const NET: u8 = 4;
}

/// Time of one vCPU by kind, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Tasks in user space.
    pub user_ns: u64,
    /// Tasks in the kernel, switches and cold caches.
    pub system_ns: u64,
    /// Interrupts.
    pub irq_ns: u64,
    /// Softirqs, also when ksoftirqd runs them.
    pub softirq_ns: u64,
    /// Halted.
    pub idle_ns: u64,
    /// Of the system time: waiting for spinlocks.
    pub spin_ns: u64,
    /// Of that: halted, without a pCPU.
    pub spin_halted_ns: u64,
    /// Without a pCPU though it had work.
    pub stolen_ns: u64,
    /// Paused by the guest's own wish, without a pCPU.
    pub paused_ns: u64,
    /// Of the system time: overhead of switches and cold caches.
    pub overhead_ns: u64,
    /// Descheduled in the middle of computing grace periods: in a softirq, or in RCU's kthread. The guest's own clock
    /// counts that as time of theirs.
    pub gp_stolen_ns: u64,
}

impl Times {
    /// Adds another vCPU's.
    pub fn add(&mut self, other: &Times) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.irq_ns += other.irq_ns;
        self.softirq_ns += other.softirq_ns;
        self.idle_ns += other.idle_ns;
        self.spin_ns += other.spin_ns;
        self.spin_halted_ns += other.spin_halted_ns;
        self.stolen_ns += other.stolen_ns;
        self.paused_ns += other.paused_ns;
        self.overhead_ns += other.overhead_ns;
        self.gp_stolen_ns += other.gp_stolen_ns;
    }

    /// Time on a pCPU.
    pub fn busy_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.irq_ns + self.softirq_ns - self.spin_halted_ns
    }
}

/// What is left of a stretch that ends by somebody else's action: waiting for a spinlock.
pub const UNTIL_HANDED_OVER: u64 = u64::MAX;

/// A run of softirqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftPass {
    /// When it began.
    pub began_ns: u64,
    /// How often new ones were found at its end.
    pub restarts: u32,
}

/// One vCPU. What every stretch of work touches comes first and fills one cache line: with many guests, what an event
/// costs is what it must fetch.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Vcpu {
    /// What is left at each level.
    left_ns: [u64; 4],
    /// Since when the present stretch runs.
    since_ns: u64,
    /// Expires when the present stretch is done.
    pub work: Timer,
    /// The current task; `None` when idle.
    pub current: Option<TaskId>,
    /// Whether it runs on the host.
    pub presence: Presence,
    /// Which levels are in progress, as bits.
    active: u8,
    /// Interrupts that wait.
    pub pending: u8,
    /// Softirqs that wait.
    pub softirqs: u8,
    /// Whether an interrupt has ended since softirqs were looked at.
    pub leaving_interrupt: bool,
    /// Whether the current task should be switched away.
    pub need_resched: bool,
    /// Mode of the current task's stretch.
    pub mode: Mode,
    /// Whether RCU sees this vCPU as idle.
    pub in_idle: bool,
    /// Whether an interrupt, or a softirq after it, has interrupted idleness.
    pub idle_interrupted: bool,
    /// Whether its tick is stopped.
    pub tick_stopped: bool,
    /// Where its time went.
    pub times: Times,
    /// The pass in progress.
    pub pass: Option<SoftPass>,
    /// When the next tick is due, while the tick runs.
    pub next_tick_ns: u64,
    /// The vCPU's clock-event device.
    pub clock: Timer,
    /// What it is set for, as the guest asked; the device may take longer.
    pub clock_set_for_ns: Option<u64>,
    /// Timers of the wheel, in jiffies.
    pub wheel: Timers,
    /// High-resolution timers, in ns.
    pub precise: Timers,
    /// Since when it is halted.
    halted_ns: u64,
    /// Whether it is halted because the guest paused it, in the middle of its task.
    pub paused: bool,
    /// The spinlock that its current task waits for.
    pub spins_for: Option<Lock>,
    /// How long it has spun since it began to, or since it was kicked.
    pub spun_ns: u64,
}

impl Vcpu {
    /// A vCPU that has not started: idle and halted since time 0.
    pub fn new(work: Timer, clock: Timer) -> Vcpu {
        Vcpu {
            presence: Presence::Halted,
            work,
            clock,
            clock_set_for_ns: None,
            left_ns: [0; 4],
            active: 0,
            since_ns: 0,
            pending: 0,
            softirqs: 0,
            pass: None,
            leaving_interrupt: false,
            need_resched: false,
            current: None,
            mode: Mode::Kernel,
            in_idle: true,
            idle_interrupted: false,
            tick_stopped: true,
            wheel: Timers::default(),
            precise: Timers::default(),
            next_tick_ns: 0,
            halted_ns: 0,
            paused: false,
            spins_for: None,
            spun_ns: 0,
            times: Times::default(),
        }
    }

    /// The level that executes.
    pub fn top(&self) -> Level {
        match self.active {
            8.. => Level::Overhead,
            4..8 => Level::Hard,
            2..4 => Level::Soft,
            _ => Level::Task,
        }
    }

    /// Begins, or prolongs, a stretch at a level.
    pub fn begin(&mut self, level: Level, ns: u64) {
        let bit = 1 << level as u8;
        let left = if self.active & bit == 0 { 0 } else { self.left_ns[level as usize] };
        self.active |= bit;
        self.left_ns[level as usize] = left.saturating_add(ns);
    }

    /// Sets what is left at a level in progress.
    pub fn set_left(&mut self, level: Level, ns: u64) {
        self.active |= 1 << level as u8;
        self.left_ns[level as usize] = ns;
    }

    /// Ends a level.
    pub fn end(&mut self, level: Level) {
        self.active &= !(1 << level as u8);
        self.left_ns[level as usize] = 0;
    }

    /// Whether a level is in progress.
    pub fn is_in(&self, level: Level) -> bool {
        self.active & (1 << level as u8) != 0
    }

    /// What is left at a level.
    pub fn left(&self, level: Level) -> u64 {
        self.left_ns[level as usize]
    }

    /// It gets a pCPU, which it lacked since the time that was booked last.
    pub fn was_away(&mut self, now_ns: u64, in_gp_kthread: bool) {
        let away_ns = now_ns - self.since_ns;
        self.times.stolen_ns += away_ns;
        if self.is_in(Level::Soft) || in_gp_kthread {
            self.times.gp_stolen_ns += away_ns;
        }
        if self.current.is_none() && self.active == 0 {
            // Kicked out of idleness: for the guest it was idle until the interrupt came through.
            self.times.idle_ns += away_ns;
        }
    }

    /// The present stretch runs from now on.
    pub fn start_clock(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }

    /// Books the time since the stretch began to run. Returns it if it was the current task's.
    pub fn book(&mut self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns - self.since_ns;
        self.since_ns = now_ns;
        if elapsed_ns == 0 {
            return 0;
        }
        let top = self.top();
        let left = &mut self.left_ns[top as usize];
        if *left != UNTIL_HANDED_OVER {
            *left -= elapsed_ns;
        }
        let times = &mut self.times;
        match top {
            Level::Task if self.mode == Mode::User => times.user_ns += elapsed_ns,
            Level::Task => {
                times.system_ns += elapsed_ns;
                if *left == UNTIL_HANDED_OVER {
                    times.spin_ns += elapsed_ns;
                    self.spun_ns += elapsed_ns;
                }
            }
            Level::Soft => times.softirq_ns += elapsed_ns,
            Level::Hard => times.irq_ns += elapsed_ns,
            Level::Overhead => {
                times.system_ns += elapsed_ns;
                times.overhead_ns += elapsed_ns;
            }
        }
        if top == Level::Task { elapsed_ns } else { 0 }
    }

    /// It halts.
    pub fn halt(&mut self, now_ns: u64) {
        self.presence = Presence::Halted;
        self.halted_ns = now_ns;
    }

    /// It is paused in the middle of its task.
    pub fn pause(&mut self, now_ns: u64) {
        self.halt(now_ns);
        self.paused = true;
    }

    /// It has something to do again.
    pub fn unhalt(&mut self, now_ns: u64) {
        debug_assert_eq!(self.presence, Presence::Halted);
        self.times = self.times_at(now_ns);
        self.paused = false;
        self.since_ns = now_ns;
        self.presence = Presence::Descheduled;
    }

    /// Time that it was on a pCPU, up to now.
    pub fn on_pcpu_ns(&self, now_ns: u64) -> u64 {
        let runs = self.presence == Presence::Running;
        self.times.busy_ns() + if runs { now_ns - self.since_ns } else { 0 }
    }

    /// Its times up to now, with what is still in progress.
    pub fn times_at(&self, now_ns: u64) -> Times {
        let mut times = self.times;
        if self.presence == Presence::Halted {
            let halted_ns = now_ns - self.halted_ns;
            if self.paused {
                times.paused_ns += halted_ns;
            } else if self.current.is_none() {
                times.idle_ns += halted_ns;
            } else {
                // A task that waits for a paravirtual lock: for the guest's accounting it is in the kernel.
                times.system_ns += halted_ns;
                times.spin_ns += halted_ns;
                times.spin_halted_ns += halted_ns;
            }
        }
        times
    }
}
