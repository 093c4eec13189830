//! Interrupts: the clock with its tick, and the requests of other vCPUs. And what idleness does to the tick.

use crate::guest::rcu::Context;
use crate::guest::timers::Sleeper;
use crate::guest::vcpu::{Level, interrupt, softirq};
use crate::guest::{Clock, Guest};
use crate::sched::Cpu;

/// After so many ticks without anyone counting jiffies, whoever ticks makes up for them (MAX_STALLED_JIFFIES).
const STALLED_JIFFIES: u64 = 5;

impl Guest {
    /// Takes the interrupts that wait for a running vCPU, as one stretch at interrupt level.
    pub(super) fn take_interrupt(&mut self, clock: &mut Clock<'_>, v: usize) {
        let vcpu = &mut self.vcpus[v];
        let pending = std::mem::take(&mut vcpu.pending);
        let context = if vcpu.in_idle {
            Context::Idle
        } else if vcpu.top() == Level::Task && vcpu.mode == crate::guest::ids::Mode::User {
            Context::User
        } else {
            Context::Kernel
        };
        if vcpu.in_idle {
            self.interrupt_idle(clock, v);
        }
        self.in_interrupt = true;
        let mut ns = 0;
        if pending & interrupt::CLOCK != 0 {
            ns += self.clock_interrupt(clock, v, context);
        }
        if pending & interrupt::RESCHEDULE != 0 {
            self.vcpus[v].need_resched = true;
            ns += self.costs.interrupt_ns;
        }
        if pending & interrupt::EXPEDITED != 0 {
            self.rcu.state.expedited_ipi(v, context, &mut self.rcu.effects);
            self.apply_effects(clock, Some(v));
            ns += self.costs.interrupt_ns;
        }
        if pending & interrupt::ASK != 0 {
            self.rcu.state.asked_ipi(clock.now_ns, v, context, &mut self.rcu.effects);
            self.apply_effects(clock, Some(v));
            // With the report, which follows now or at the next switch.
            ns += self.costs.interrupt_ns + self.costs.rcu_core_ns;
        }
        if pending & interrupt::BARRIER != 0 {
            self.entrain_barrier(clock, v);
            ns += self.costs.interrupt_ns;
        }
        if pending & interrupt::EVENT != 0 {
            self.vcpus[v].softirqs |= softirq::NET;
            ns += self.costs.interrupt_ns;
        }
        if pending & interrupt::BLOCK != 0 {
            ns += self.disk_interrupt(clock, v);
        }
        self.in_interrupt = false;
        self.vcpus[v].begin(Level::Hard, ns);
    }

    /// The clock-event device's interrupt: high-resolution timers, and the tick if it is due. Returns its CPU time.
    fn clock_interrupt(&mut self, clock: &mut Clock<'_>, v: usize, context: Context) -> u64 {
        let now_ns = clock.now_ns;
        let mut ns = self.costs.interrupt_ns;
        self.vcpus[v].clock_set_for_ns = None;
        while let Some(sleeper) = self.vcpus[v].precise.expire(now_ns) {
            ns += self.end_sleep(clock, v, sleeper);
        }
        if !self.vcpus[v].tick_stopped && self.vcpus[v].next_tick_ns <= now_ns {
            self.vcpus[v].next_tick_ns = self.jiffies.next_tick_ns(now_ns);
            ns += self.tick(clock, v, context);
        } else if self.vcpus[v].tick_stopped && self.vcpus[v].softirqs & softirq::TIMER != 0 {
            // A stopped tick that wakes for a timer of the wheel is a tick for RCU all the same.
            self.rcu.state.tick(v, context, &mut self.rcu.effects);
            self.apply_effects(clock, Some(v));
            ns += self.costs.tick_ns;
        }
        self.program_clock(clock, v);
        ns
    }

    /// The tick.
    fn tick(&mut self, clock: &mut Clock<'_>, v: usize, context: Context) -> u64 {
        let jiffies = self.jiffies.at(clock.now_ns);
        if *self.jiffies.timekeeper.get_or_insert(v) == v || jiffies >= self.jiffies.now + STALLED_JIFFIES {
            self.jiffies.now = jiffies;
        }
        self.raise_due_timers(v);
        self.rcu.state.tick(v, context, &mut self.rcu.effects);
        self.apply_effects(clock, Some(v));
        let cpu = Cpu(v as u32);
        if self.tasks.scheduler.needs_tick(cpu) {
            self.tasks.scheduler.tick(clock.now_ns, cpu, &mut self.tasks.orders);
            self.apply_orders(Some(v));
        }
        self.costs.tick_ns + self.return_surplus(v)
    }

    /// Wakes who sleeps by a timer, unless that sleep is over. Returns the CPU time.
    pub(super) fn end_sleep(&mut self, clock: &mut Clock<'_>, v: usize, sleeper: Sleeper) -> u64 {
        let task = &mut self.tasks[sleeper.task];
        if !task.blocked || task.sleep != sleeper.sleep {
            return 0;
        }
        task.timed_out = true;
        self.wake_task(clock, sleeper.task, Some(v));
        self.costs.wake_ns
    }

    /// Arms the clock-event device for what comes first.
    pub(super) fn program_clock(&mut self, clock: &mut Clock<'_>, v: usize) {
        let vcpu = &self.vcpus[v];
        let tick = (!vcpu.tick_stopped).then_some(vcpu.next_tick_ns);
        // Timers that a softirq is about to serve need no further interrupt.
        let waits = vcpu.tick_stopped && vcpu.softirqs & softirq::TIMER == 0;
        let wheel = vcpu.wheel.next().filter(|_| waits);
        let wheel = wheel.map(|jiffy| self.jiffies.start_ns(jiffy));
        let next = [tick, wheel, vcpu.precise.next()].into_iter().flatten().min();
        let set = std::mem::replace(&mut self.vcpus[v].clock_set_for_ns, next);
        let device = self.vcpus[v].clock;
        match next {
            // The device is not touched for what it is set for already: that would put it off.
            Some(_) if next == set && self.idle.least_delta_ns > 0 => {}
            // A deadline in the past is served as soon as the device can.
            Some(at_ns) => clock.queue.arm(device, at_ns.max(clock.now_ns + self.idle.least_delta_ns)),
            None => clock.queue.disarm(device),
        }
    }

    /// The vCPU becomes idle, or goes on to be: RCU sees it so, and the tick stops unless something needs it.
    pub(super) fn enter_idle(&mut self, clock: &mut Clock<'_>, v: usize) {
        let vcpu = &mut self.vcpus[v];
        let was_idle = std::mem::replace(&mut vcpu.in_idle, true);
        if !was_idle || std::mem::take(&mut vcpu.idle_interrupted) {
            self.rcu.state.idle_enter(v);
        }
        // A CPU with callbacks keeps its tick, and so does one with a timer at the next tick; or before it, if the platform
        // is so.
        let soon = self.vcpus[v].wheel.next().is_some_and(|deadline| deadline <= self.jiffies.now + 1);
        let until_ns = clock.now_ns + self.jiffies.tick_ns;
        let short = self.vcpus[v].precise.next().is_some_and(|at_ns| at_ns <= until_ns);
        let has_callbacks = self.rcu.state.backlog(v) > 0 && self.rcu.offload.is_empty();
        let stops = !(has_callbacks || self.has_latent(v) || soon || short && self.idle.keeps_tick);
        if stops && !self.vcpus[v].tick_stopped && self.jiffies.timekeeper == Some(v) {
            self.jiffies.timekeeper = None;
        } else if !stops {
            self.start_tick(clock.now_ns, v);
        }
        self.vcpus[v].tick_stopped = stops;
        self.program_clock(clock, v);
    }

    /// An interrupt comes while the vCPU is idle: RCU watches, and if the tick is stopped, jiffies catch up.
    fn interrupt_idle(&mut self, clock: &mut Clock<'_>, v: usize) {
        if !std::mem::replace(&mut self.vcpus[v].idle_interrupted, true) {
            self.rcu.state.idle_exit(v);
        }
        if self.vcpus[v].tick_stopped {
            self.jiffies.now = self.jiffies.at(clock.now_ns);
            self.raise_due_timers(v);
        }
    }

    /// The vCPU is idle no more: its tick runs again.
    pub(super) fn leave_idle(&mut self, clock: &mut Clock<'_>, v: usize) {
        if std::mem::take(&mut self.vcpus[v].in_idle) {
            if !std::mem::take(&mut self.vcpus[v].idle_interrupted) {
                self.rcu.state.idle_exit(v);
            }
            self.start_tick(clock.now_ns, v);
            self.program_clock(clock, v);
        }
    }

    fn start_tick(&mut self, now_ns: u64, v: usize) {
        if std::mem::take(&mut self.vcpus[v].tick_stopped) {
            self.jiffies.now = self.jiffies.at(now_ns);
            self.jiffies.timekeeper.get_or_insert(v);
            self.vcpus[v].next_tick_ns = self.jiffies.next_tick_ns(now_ns);
            self.raise_due_timers(v);
        }
    }

    fn raise_due_timers(&mut self, v: usize) {
        let vcpu = &mut self.vcpus[v];
        if vcpu.wheel.next().is_some_and(|deadline| deadline <= self.jiffies.now) {
            vcpu.softirqs |= softirq::TIMER;
        }
    }
}
