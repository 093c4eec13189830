//! Tasks: their operations, sleeping and waking, switching, and what RCU and the scheduler want done.

use crate::guest::callback;
use crate::guest::env::Env;
use crate::guest::ids::{Mode, TaskId};
use crate::guest::rcu::{Kthread, Wakeup};
use crate::guest::task::{Kind, Op};
use crate::guest::timers::Sleeper;
use crate::guest::vcpu::{Level, interrupt};
use crate::guest::{Clock, Guest, Request};
use crate::sched::{Cpu, Entity};

/// The one `rcu_barrier()` that can be in progress; others wait their turn.
#[derive(Debug, Default)]
pub struct Barrier {
    /// Parts that have not passed yet; the caller holds one itself while it queues them.
    left: u32,
    /// Who waits for it, and who for the next one.
    caller: Option<TaskId>,
    queue: Vec<TaskId>,
}

impl Guest {
    /// The current task's next operation.
    pub(super) fn next_operation(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        let mut kind = self.tasks[task.0 as usize].kind.take().expect("a task decides once at a time");
        match &mut kind {
            Kind::Program(program) => {
                let mut env = Env {
                    now_ns: clock.now_ns,
                    vcpu: v,
                    task,
                    steal_ns: self.vcpus[v].times.stolen_ns,
                    costs: &self.costs,
                    memory: &mut self.memory,
                    rcu: &mut self.rcu,
                    effects: &mut self.effects,
                    random: &mut self.streams[task.0 as usize],
                    wakes: &mut self.wakes,
                    batched: &mut self.batched,
                    network: &mut self.network,
                    io: &mut self.io,
                    jiffies: self.jiffies,
                    counters: &mut self.counters,
                    spent_ns: 0,
                };
                let op = program.next(&mut env);
                let spent_ns = env.spent_ns;
                self.send_answers();
                self.send_to_disk();
                self.set_mode(v, Mode::Kernel);
                self.vcpus[v].begin(Level::Task, spent_ns);
                self.tasks[task.0 as usize].kind = Some(kind);
                self.apply_effects(clock, Some(v));
                while let Some(other) = self.wakes.pop() {
                    self.notify(clock, other, v);
                }
                self.apply_masks(clock, v);
                self.perform(clock, v, task, op);
            }
            Kind::Kworker => {
                self.tasks[task.0 as usize].kind = Some(kind);
                self.run_kworker(clock, v, task);
            }
            Kind::GpKthread => {
                self.tasks[task.0 as usize].kind = Some(kind);
                self.run_gp_kthread(clock, v, task);
            }
            Kind::Ksoftirqd => {
                self.tasks[task.0 as usize].kind = Some(kind);
                if self.vcpus[v].softirqs != 0 {
                    self.begin_softirqs(clock, v);
                } else {
                    self.block(v, task);
                }
            }
        }
    }

    fn set_mode(&mut self, v: usize, mode: Mode) {
        self.vcpus[v].mode = mode;
    }

    fn perform(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId, op: Op) {
        self.tasks[task.0 as usize].runs_on = matches!(op, Op::RunOn { .. });
        match op {
            Op::Run { ns, mode } => {
                // What the program spent was in the kernel; a stretch has one mode, that of its larger part.
                if ns > self.vcpus[v].left(Level::Task) {
                    self.set_mode(v, mode);
                }
                self.vcpus[v].begin(Level::Task, ns);
            }
            Op::RunOn { ns } => self.vcpus[v].begin(Level::Task, ns),
            Op::Lock(lock) => self.take_lock(v, task, lock),
            Op::Unlock(lock) => self.release_lock(clock, v, task, lock),
            Op::Schedule => {
                self.vcpus[v].begin(Level::Task, self.costs.schedule_ns);
                self.vcpus[v].need_resched = true;
            }
            Op::Sleep { ns } => self.sleep_precisely(clock, v, task, ns),
            Op::SleepJiffies(jiffies) => self.sleep_jiffies(v, task, jiffies),
            Op::Synchronize => {
                self.counters.queued += 1;
                self.vcpus[v].begin(Level::Task, self.costs.call_rcu_ns);
                self.rcu.call(v, callback::wake(task), &mut self.effects);
                self.apply_effects(clock, Some(v));
                self.block(v, task);
            }
            Op::SynchronizeExpedited => {
                self.rcu.start_expedited(v, u64::from(task.0), &mut self.effects);
                self.block(v, task);
                self.apply_effects(clock, Some(v));
            }
            Op::Barrier => self.start_barrier(clock, v, task),
            Op::Wait => {
                let state = &mut self.tasks[task.0 as usize];
                state.waits = !std::mem::take(&mut state.woken);
                if state.waits {
                    self.block(v, task);
                }
            }
            Op::Exit => self.block(v, task),
        }
    }

    /// One step of RCU's kthread.
    fn run_gp_kthread(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        let timed_out = std::mem::take(&mut self.tasks[task.0 as usize].timed_out);
        let why = if timed_out { Wakeup::TimedOut } else { Wakeup::Woken };
        let step = self.rcu.kthread(clock.now_ns, self.jiffies, v, why, &mut self.effects);
        self.set_mode(v, Mode::Kernel);
        match step.next {
            Kthread::Work => {
                let ns = self.costs.kthread_step_ns + self.costs.kthread_visit_ns * step.visited;
                self.vcpus[v].begin(Level::Task, ns);
            }
            Kthread::SleepUntilWoken => self.block(v, task),
            Kthread::SleepJiffies(jiffies) => self.sleep_jiffies(v, task, jiffies),
        }
        self.apply_effects(clock, Some(v));
    }

    fn sleep_precisely(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId, ns: u64) {
        self.block(v, task);
        let sleep = self.tasks[task.0 as usize].sleep;
        self.vcpus[v].precise.add(clock.now_ns + ns, Sleeper { task, sleep });
        self.program_clock(clock, v);
    }

    pub(super) fn sleep_jiffies(&mut self, v: usize, task: TaskId, jiffies: u64) {
        self.block(v, task);
        let sleep = self.tasks[task.0 as usize].sleep;
        // The wheel rounds up, so that no timer expires early (calc_index).
        self.vcpus[v].wheel.add(self.jiffies + jiffies + 1, Sleeper { task, sleep });
        self.tasks[task.0 as usize].timer_on = Some(v as u16);
    }

    /// The current task gives up the vCPU until it is woken.
    pub(super) fn block(&mut self, v: usize, task: TaskId) {
        debug_assert_eq!(self.vcpus[v].current, Some(task));
        let state = &mut self.tasks[task.0 as usize];
        state.blocked = true;
        state.sleep = state.sleep.wrapping_add(1);
        // What it spent on the way belongs to it and is paid before the switch.
        self.vcpus[v].need_resched = true;
    }

    /// A task wakes another one: ends its [`Op::Wait`], or the next one; nothing else that a program waits for.
    pub(super) fn notify(&mut self, clock: &mut Clock<'_>, task: TaskId, from: usize) {
        let state = &mut self.tasks[task.0 as usize];
        let is_program = matches!(state.kind, Some(Kind::Program(_)));
        if is_program && !std::mem::take(&mut state.waits) {
            state.woken = true;
        } else {
            self.wake_task(clock, task, Some(from));
        }
    }

    /// Wakes a task, if it sleeps or waits.
    pub(super) fn wake_task(&mut self, clock: &mut Clock<'_>, task: TaskId, from: Option<usize>) {
        let state = &mut self.tasks[task.0 as usize];
        if !std::mem::take(&mut state.blocked) {
            return;
        }
        state.woke_exec_ns = state.exec_ns;
        if let Some(v) = state.timer_on.take() {
            let sleeper = Sleeper { task, sleep: state.sleep };
            self.vcpus[usize::from(v)].wheel.cancel(sleeper);
        }
        let from = from.map(|v| Cpu(v as u32));
        self.scheduler.wake(clock.now_ns, Entity(task.0), from, &mut self.orders);
        self.apply_orders(clock, from.map(|cpu| cpu.0 as usize));
    }

    /// Switches to what the guest's scheduler picks.
    pub(super) fn switch_task(&mut self, clock: &mut Clock<'_>, v: usize) {
        let cpu = Cpu(v as u32);
        let vcpu = &mut self.vcpus[v];
        vcpu.need_resched = false;
        let previous = vcpu.current.take();
        if let Some(task) = previous {
            let state = &mut self.tasks[task.0 as usize];
            (state.left_ns, state.mode) = (vcpu.left(Level::Task), vcpu.mode);
            vcpu.end(Level::Task);
            if state.blocked && self.scheduler.running(cpu) == Some(Entity(task.0)) {
                self.scheduler.block(clock.now_ns, cpu, &mut self.orders);
            }
        }
        self.rcu.context_switch(v, &mut self.effects);
        let next = self.scheduler.pick(clock.now_ns, cpu, &mut self.orders).map(|entity| TaskId(entity.0));
        let vcpu = &mut self.vcpus[v];
        vcpu.current = next;
        if let Some(task) = next {
            let state = &self.tasks[task.0 as usize];
            vcpu.mode = state.mode;
            if state.left_ns > 0 {
                vcpu.set_left(Level::Task, state.left_ns);
            }
        }
        if next != previous {
            vcpu.begin(Level::Overhead, self.costs.switch_ns);
        }
        self.apply_effects(clock, Some(v));
        self.apply_orders(clock, Some(v));
    }

    /// Does what the guest's scheduler wants: the vCPUs named should schedule.
    pub(super) fn apply_orders(&mut self, _clock: &mut Clock<'_>, here: Option<usize>) {
        while let Some(cpu) = self.orders.resched.pop() {
            let v = cpu.0 as usize;
            let vcpu = &mut self.vcpus[v];
            if here == Some(v) {
                vcpu.need_resched = true;
            } else if vcpu.pending & interrupt::RESCHEDULE == 0 {
                vcpu.pending |= interrupt::RESCHEDULE;
                self.requests.push(Request::Kick(v));
            }
        }
        debug_assert!(self.orders.arm.is_empty(), "a guest's tasks have no quotas");
        // A vCPU that is not idle ticks in any case.
        self.orders.ticks.clear();
    }

    /// Does what RCU wants, and then what the guest's scheduler wants; most often, neither wants anything.
    #[inline]
    pub(super) fn apply_effects(&mut self, clock: &mut Clock<'_>, here: Option<usize>) {
        if !self.effects.is_empty() || !self.orders.resched.is_empty() {
            self.apply_all_effects(clock, here);
        }
        self.orders.ticks.clear();
    }

    fn apply_all_effects(&mut self, clock: &mut Clock<'_>, here: Option<usize>) {
        while let Some(cpu) = self.effects.softirq.pop() {
            self.raise_rcu(clock, cpu as usize);
        }
        if std::mem::take(&mut self.effects.wake_kthread) {
            self.wake_task(clock, self.gp_kthread, here);
        }
        while let Some(cpu) = self.effects.resched.pop() {
            self.orders.resched.push(Cpu(cpu));
        }
        self.apply_orders(clock, here);
        while let Some(cpu) = self.effects.ipi.pop() {
            self.vcpus[cpu as usize].pending |= interrupt::EXPEDITED;
            self.requests.push(Request::Kick(cpu as usize));
        }
        while let Some(token) = self.effects.wake.pop() {
            self.wake_task(clock, TaskId(token as u32), here);
        }
    }

    fn start_barrier(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.block(v, task);
        if self.barrier.caller.is_some() {
            self.barrier.queue.push(task);
            return;
        }
        self.ask_for_barrier(clock, v, task);
    }

    /// Asks each vCPU with callbacks to queue one behind them.
    fn ask_for_barrier(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.barrier.caller = Some(task);
        self.barrier.left = 1;
        for other in 0..self.vcpus.len() {
            if self.rcu.backlog(other) > 0 {
                self.barrier.left += 1;
                self.vcpus[other].pending |= interrupt::BARRIER;
                self.requests.push(Request::Kick(other));
            }
        }
        self.barrier_passed(clock, v, task);
    }

    /// A vCPU queues its part of the barrier.
    pub(super) fn entrain_barrier(&mut self, clock: &mut Clock<'_>, v: usize) {
        let Some(task) = self.barrier.caller else {
            return;
        };
        if self.rcu.entrain(v, callback::barrier(task)) {
            self.counters.queued += 1;
        } else {
            self.barrier_passed(clock, v, task);
        }
    }

    /// One part of the barrier has passed; the last one wakes its caller and begins the next.
    pub(super) fn barrier_passed(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.barrier.left -= 1;
        if self.barrier.left > 0 {
            return;
        }
        self.barrier.caller = None;
        self.wake_task(clock, task, Some(v));
        if !self.barrier.queue.is_empty() {
            let next = self.barrier.queue.remove(0);
            self.ask_for_barrier(clock, v, next);
        }
    }
}
