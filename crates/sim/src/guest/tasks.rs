//! Tasks: their operations, sleeping and waking, switching, and what the scheduler wants done.

use crate::guest::callback;
use crate::guest::env::Env;
use crate::guest::ids::{Mode, TaskId};
use crate::guest::task::{Kind, Op};
use crate::guest::timers::Sleeper;
use crate::guest::vcpu::{Level, Presence, Vcpu, interrupt};
use crate::guest::{Clock, Guest};
use crate::sched::{Cpu, Entity};

impl Guest {
    /// The current task's next operation.
    pub(super) fn next_operation(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        let is_atomic = self.tasks[task].locks > 0;
        let mut kind = self.tasks[task].kind.take().expect("a task decides once at a time");
        match &mut kind {
            Kind::Program(program) => {
                let (random, to_wake) = self.tasks.surroundings(task);
                let mut env = Env {
                    now_ns: clock.now_ns,
                    vcpu: v,
                    task,
                    is_atomic,
                    steal_ns: self.vcpus[v].times.stolen_ns,
                    costs: &self.costs,
                    memory: &mut self.memory,
                    rcu: &mut self.rcu,
                    io: &mut self.io,
                    random,
                    to_wake,
                    jiffies: self.jiffies.now,
                    counters: &mut self.counters,
                    spent_ns: 0,
                };
                let op = program.next(&mut env);
                let spent_ns = env.spent_ns;
                self.send_answers();
                self.send_to_disk();
                self.vcpus[v].mode = Mode::Kernel;
                self.vcpus[v].begin(Level::Task, spent_ns);
                self.tasks[task].kind = Some(kind);
                self.apply_effects(clock, Some(v));
                while let Some(other) = self.tasks.to_wake.pop() {
                    self.notify(clock, other, v);
                }
                self.apply_masks(clock, v);
                self.perform(clock, v, task, op);
            }
            Kind::Kworker => {
                self.tasks[task].kind = Some(kind);
                self.run_kworker(clock, v, task);
            }
            &mut Kind::Offload(of) => {
                self.tasks[task].kind = Some(kind);
                self.run_offloaded(clock, v, task, of);
            }
            Kind::GpKthread => {
                self.tasks[task].kind = Some(kind);
                self.run_gp_kthread(clock, v, task);
            }
            Kind::Ksoftirqd => {
                self.tasks[task].kind = Some(kind);
                if self.vcpus[v].softirqs != 0 {
                    self.begin_softirqs(clock, v);
                } else {
                    self.block(v, task);
                }
            }
        }
    }

    fn perform(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId, op: Op) {
        self.tasks[task].runs_on = matches!(op, Op::RunOn { .. });
        match op {
            Op::Run { ns, mode } => {
                // What the program spent was in the kernel; a stretch has one mode, that of its larger part.
                if ns > self.vcpus[v].left(Level::Task) {
                    self.vcpus[v].mode = mode;
                }
                self.vcpus[v].begin(Level::Task, ns);
                self.mark_readers(v);
            }
            Op::RunOn { ns } => {
                self.vcpus[v].begin(Level::Task, ns);
                self.mark_readers(v);
            }
            Op::Lock(lock) => self.take_lock(v, task, lock),
            Op::Unlock(lock) => self.release_lock(clock, v, task, lock),
            Op::Schedule => {
                self.vcpus[v].begin(Level::Task, self.costs.schedule_ns);
                self.vcpus[v].need_resched = true;
            }
            Op::Sleep { ns } => self.sleep_precisely(clock, v, task, ns),
            Op::SleepJiffies(jiffies) => self.sleep_jiffies(v, task, jiffies),
            Op::Synchronize if !self.expedites => {
                self.vcpus[v].begin(Level::Task, self.costs.call_rcu_ns);
                self.rcu.call(v, callback::wake(task));
                self.apply_effects(clock, Some(v));
                self.block(v, task);
            }
            Op::Synchronize | Op::SynchronizeExpedited => self.wait_expedited(clock, v, task),
            Op::Barrier => self.start_barrier(clock, v, task),
            Op::Wait => {
                let state = &mut self.tasks[task];
                state.waits = !std::mem::take(&mut state.woken);
                if state.waits {
                    self.block(v, task);
                }
            }
            Op::Exit => self.block(v, task),
        }
    }

    /// Charges what the marks of read-side sections cost within the stretch that begins, if it is in the kernel.
    fn mark_readers(&mut self, v: usize) {
        let vcpu = &mut self.vcpus[v];
        if self.costs.marks_per_million > 0 && vcpu.mode == Mode::Kernel {
            let ns = vcpu.left(Level::Task) * self.costs.marks_per_million / 1_000_000;
            vcpu.begin(Level::Task, ns);
            self.counters.marks_ns += ns;
        }
    }

    fn sleep_precisely(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId, ns: u64) {
        self.block(v, task);
        let sleep = self.tasks[task].sleep;
        self.vcpus[v].precise.add(clock.now_ns + ns, Sleeper { task, sleep });
        self.program_clock(clock, v);
    }

    pub(super) fn sleep_jiffies(&mut self, v: usize, task: TaskId, jiffies: u64) {
        self.block(v, task);
        let sleep = self.tasks[task].sleep;
        // The wheel rounds up, so that no timer expires early (calc_index).
        self.vcpus[v].wheel.add(self.jiffies.now + jiffies + 1, Sleeper { task, sleep });
        self.tasks[task].timer_on = Some(v as u16);
    }

    /// The current task gives up the vCPU until it is woken.
    pub(super) fn block(&mut self, v: usize, task: TaskId) {
        debug_assert_eq!(self.vcpus[v].current, Some(task));
        let state = &mut self.tasks[task];
        state.blocked = true;
        state.sleep = state.sleep.wrapping_add(1);
        // What it spent on the way belongs to it and is paid before the switch.
        self.vcpus[v].need_resched = true;
    }

    /// A task wakes another one: ends its [`Op::Wait`], or the next one; nothing else that a program waits for.
    pub(super) fn notify(&mut self, clock: &mut Clock<'_>, task: TaskId, from: usize) {
        let state = &mut self.tasks[task];
        let is_program = matches!(state.kind, Some(Kind::Program(_)));
        if is_program && !std::mem::take(&mut state.waits) {
            state.woken = true;
        } else {
            self.wake_task(clock, task, Some(from));
        }
    }

    /// Wakes a task, if it sleeps or waits.
    pub(super) fn wake_task(&mut self, clock: &mut Clock<'_>, task: TaskId, from: Option<usize>) {
        let state = &mut self.tasks[task];
        if !std::mem::take(&mut state.blocked) {
            return;
        }
        state.woke_exec_ns = state.exec_ns;
        if let Some(v) = state.timer_on.take() {
            let sleeper = Sleeper { task, sleep: state.sleep };
            self.vcpus[usize::from(v)].wheel.cancel(sleeper);
        }
        if self.places_kthread && task == self.rcu.gp_kthread {
            let is_on = |vcpu: &Vcpu| vcpu.presence == Presence::Running;
            let bits = self.vcpus.iter().enumerate().filter(|(_, vcpu)| is_on(vcpu)).map(|(v, _)| 1 << v);
            let on = bits.fold(0, |all: u64, bit: u64| all | bit);
            // If none is on, all will do.
            let all = u64::MAX >> (u64::BITS as usize - self.vcpus.len().min(64));
            self.allow(clock, task, if on == 0 { all } else { on });
        }
        let from = from.map(|v| Cpu(v as u32));
        self.tasks.scheduler.wake(clock.now_ns, Entity(task.0), from, &mut self.tasks.orders);
        self.apply_orders(from.map(|cpu| cpu.0 as usize));
    }

    /// From now on tasks run on these vCPUs, a bit for each, as far as their own affinity lets them.
    pub(crate) fn use_vcpus(&mut self, clock: &mut Clock<'_>, used: u64) {
        for task in self.tasks.ids() {
            self.allow(clock, task, used);
        }
    }

    /// From now on a task runs on these vCPUs, as far as its own affinity lets it.
    fn allow(&mut self, clock: &mut Clock<'_>, task: TaskId, used: u64) {
        if let Some(allowed) = self.tasks.allowed_of(task, used) {
            let tasks = &mut self.tasks;
            tasks.scheduler.set_allowed(clock.now_ns, Entity(task.0), &allowed, &mut tasks.orders);
            self.apply_orders(None);
        }
    }

    /// Switches to what the guest's scheduler picks.
    pub(super) fn switch_task(&mut self, clock: &mut Clock<'_>, v: usize) {
        let cpu = Cpu(v as u32);
        let vcpu = &mut self.vcpus[v];
        vcpu.need_resched = false;
        let previous = vcpu.current.take();
        if let Some(task) = previous {
            let state = &mut self.tasks[task];
            (state.left_ns, state.mode) = (vcpu.left(Level::Task), vcpu.mode);
            vcpu.end(Level::Task);
            if state.blocked && self.tasks.scheduler.running(cpu) == Some(Entity(task.0)) {
                self.tasks.scheduler.block(clock.now_ns, cpu, &mut self.tasks.orders);
            }
        }
        self.rcu.state.context_switch(v, &mut self.rcu.effects);
        let next = self
            .tasks
            .scheduler
            .pick(clock.now_ns, cpu, &mut self.tasks.orders)
            .map(|entity| TaskId(entity.0));
        let vcpu = &mut self.vcpus[v];
        vcpu.current = next;
        if let Some(task) = next {
            let state = &self.tasks[task];
            vcpu.mode = state.mode;
            if state.left_ns > 0 {
                vcpu.set_left(Level::Task, state.left_ns);
            }
        }
        if next != previous {
            vcpu.begin(Level::Overhead, self.costs.switch_ns);
        }
        self.apply_effects(clock, Some(v));
        self.apply_orders(Some(v));
    }

    /// Does what the guest's scheduler wants: the vCPUs named should schedule.
    pub(super) fn apply_orders(&mut self, here: Option<usize>) {
        while let Some(cpu) = self.tasks.orders.resched.pop() {
            let v = cpu.0 as usize;
            let vcpu = &mut self.vcpus[v];
            if here == Some(v) {
                vcpu.need_resched = true;
            } else if vcpu.pending & interrupt::RESCHEDULE == 0 {
                self.send_ipi(v, interrupt::RESCHEDULE);
            }
        }
        debug_assert!(self.tasks.orders.arm.is_empty(), "a guest's tasks have no quotas");
        // A vCPU that is not idle ticks in any case.
        self.tasks.orders.ticks.clear();
    }
}
