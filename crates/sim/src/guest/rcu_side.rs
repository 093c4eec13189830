//! A guest's side of RCU: the state machine with what it wants done, its kthread, `rcu_barrier()`, and `kfree_rcu()`.

use reprieve_study::GracePeriod;

use crate::guest::batched_frees::BatchedFrees;
use crate::guest::callback;
use crate::guest::ids::{Mode, TaskId};
use crate::guest::latent::Latent;
use crate::guest::outstanding::Outstanding;
use crate::guest::rcu::{Callback, Effects, Kthread, Params, Rcu, Wakeup};
use crate::guest::vcpu::{Level, interrupt};
use crate::guest::{Clock, Guest, Remedies};
use crate::sched::Cpu;

/// RCU of a guest, with what the guest keeps for it.
#[derive(Debug)]
pub struct RcuSide {
    pub(crate) state: Rcu,
    pub(super) effects: Effects,
    pub(super) gp_kthread: TaskId,
    barrier: Barrier,
    pub(super) batched: BatchedFrees,
    pub(super) latent: Option<Latent>,
    pub(super) outstanding: Option<Outstanding>,
    /// The thread that invokes each vCPU's callbacks, where they are offloaded.
    pub(super) offload: Vec<TaskId>,
    /// Callbacks queued so far.
    pub(crate) queued: u64,
    /// Callbacks invoked so far.
    pub invoked: u64,
}

/// The one `rcu_barrier()` that can be in progress; others wait their turn.
#[derive(Debug, Default)]
struct Barrier {
    /// Parts that have not passed yet; the caller holds one itself while it queues them.
    left: u32,
    /// Who waits for it, and who for the next one.
    caller: Option<TaskId>,
    queue: Vec<TaskId>,
}

impl RcuSide {
    /// RCU of a guest with that many vCPUs, all idle. Its tasks are yet to be named.
    pub(super) fn new(params: &Params, remedies: &Remedies, vcpus: usize) -> RcuSide {
        let mut state = Rcu::new(params, vcpus);
        (0..vcpus).for_each(|v| state.idle_enter(v));
        RcuSide {
            state,
            effects: Effects::default(),
            gp_kthread: TaskId(0),
            barrier: Barrier::default(),
            batched: BatchedFrees::new(params.hz, vcpus),
            latent: remedies.slab.map(|settings| Latent::new(settings, vcpus)),
            outstanding: remedies.pressure.map(|settings| Outstanding::new(settings, vcpus)),
            offload: Vec::new(),
            queued: 0,
            invoked: 0,
        }
    }

    /// Queues a callback on that vCPU.
    pub(super) fn call(&mut self, v: usize, callback: Callback) {
        self.queued += 1;
        self.state.call(v, callback, &mut self.effects);
    }

    /// Callbacks, objects of `kfree_rcu()` and latent objects that wait for a grace period.
    pub fn backlog(&self) -> u64 {
        let has_passed = |cookie| self.state.has_passed(cookie);
        let latent = self.latent.as_ref().map_or(0, |latent| latent.waiting(has_passed));
        self.state.backlog_total() + self.batched.backlog() + latent
    }

    /// The same, with latent objects that can be used again.
    pub(super) fn held(&self) -> u64 {
        let latent = self.latent.as_ref().map_or(0, Latent::held);
        self.state.backlog_total() + self.batched.backlog() + latent
    }

    /// Takes the grace periods that ended since the last call, in order ([`Rcu::finished`]).
    pub fn finished(&mut self) -> std::vec::Drain<'_, GracePeriod> {
        self.state.finished()
    }

    /// Start of the grace period in progress.
    pub fn open_since_ns(&self) -> Option<u64> {
        self.state.open_since_ns()
    }

    /// Whether the grace period in progress waits for that vCPU.
    pub fn is_holdout(&self, v: usize) -> bool {
        self.state.is_holdout(v)
    }

    /// Checks that no callback is lost or invoked twice.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn check(&self) -> Result<(), String> {
        let RcuSide { queued, invoked, .. } = self;
        let waiting = self.state.backlog_total();
        if *queued != invoked + waiting {
            return Err(format!("{queued} callbacks were queued and {invoked} invoked, but {waiting} wait"));
        }
        self.latent.as_ref().map_or(Ok(()), Latent::check)
    }
}

impl Guest {
    /// One step of RCU's kthread.
    pub(super) fn run_gp_kthread(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        let timed_out = std::mem::take(&mut self.tasks[task].timed_out);
        let why = if timed_out { Wakeup::TimedOut } else { Wakeup::Woken };
        let step = self.rcu.state.kthread(clock.now_ns, self.jiffies.now, v, why, &mut self.rcu.effects);
        self.vcpus[v].mode = Mode::Kernel;
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

    /// Does what RCU wants, and then what the guest's scheduler wants; most often, neither wants anything.
    #[inline]
    pub(super) fn apply_effects(&mut self, clock: &mut Clock<'_>, here: Option<usize>) {
        if !self.rcu.effects.is_empty() || !self.tasks.orders.resched.is_empty() {
            self.apply_all_effects(clock, here);
        }
        self.tasks.orders.ticks.clear();
    }

    fn apply_all_effects(&mut self, clock: &mut Clock<'_>, here: Option<usize>) {
        while let Some(cpu) = self.rcu.effects.report.pop() {
            self.rcu.state.report_asked(clock.now_ns, cpu as usize, &mut self.rcu.effects);
        }
        while let Some(cpu) = self.rcu.effects.softirq.pop() {
            self.raise_rcu(clock, cpu as usize);
        }
        if std::mem::take(&mut self.rcu.effects.wake_kthread) {
            self.wake_task(clock, self.rcu.gp_kthread, here);
        }
        while let Some(cpu) = self.rcu.effects.resched.pop() {
            self.tasks.orders.resched.push(Cpu(cpu));
        }
        self.apply_orders(here);
        while let Some(cpu) = self.rcu.effects.ipi.pop() {
            self.send_ipi(cpu as usize, interrupt::EXPEDITED);
        }
        while let Some(cpu) = self.rcu.effects.ask.pop() {
            self.send_ipi(cpu as usize, interrupt::ASK);
        }
        while let Some(cpu) = self.rcu.effects.invoke.pop() {
            self.wake_task(clock, self.rcu.offload[cpu as usize], here);
        }
        while let Some(token) = self.rcu.effects.wake.pop() {
            self.wake_task(clock, TaskId(token as u32), here);
        }
    }

    pub(super) fn start_barrier(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.block(v, task);
        if self.rcu.barrier.caller.is_some() {
            self.rcu.barrier.queue.push(task);
            return;
        }
        self.ask_for_barrier(clock, v, task);
    }

    /// Asks each vCPU with callbacks to queue one behind them.
    fn ask_for_barrier(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.rcu.barrier.caller = Some(task);
        self.rcu.barrier.left = 1;
        for other in 0..self.vcpus.len() {
            if self.rcu.state.backlog(other) > 0 {
                self.rcu.barrier.left += 1;
                self.send_ipi(other, interrupt::BARRIER);
            }
        }
        self.barrier_passed(clock, v, task);
    }

    /// A vCPU queues its part of the barrier.
    pub(super) fn entrain_barrier(&mut self, clock: &mut Clock<'_>, v: usize) {
        let Some(task) = self.rcu.barrier.caller else {
            return;
        };
        if self.rcu.state.entrain(v, callback::barrier(task)) {
            self.rcu.queued += 1;
        } else {
            self.barrier_passed(clock, v, task);
        }
    }

    /// One part of the barrier has passed; the last one wakes its caller and begins the next.
    pub(super) fn barrier_passed(&mut self, clock: &mut Clock<'_>, v: usize, task: TaskId) {
        self.rcu.barrier.left -= 1;
        if self.rcu.barrier.left > 0 {
            return;
        }
        self.rcu.barrier.caller = None;
        self.wake_task(clock, task, Some(v));
        if !self.rcu.barrier.queue.is_empty() {
            let next = self.rcu.barrier.queue.remove(0);
            self.ask_for_barrier(clock, v, next);
        }
    }
}
