//! Softirqs: after an interrupt, or by ksoftirqd when there are too many. (In Linux 6.1 interrupts leave them to ksoftirqd while it
//! is runnable; since 6.5 they do not.)

use reprieve_study::units::MILLISECOND_NS;

use crate::guest::vcpu::{Level, SoftPass, softirq};
use crate::guest::{Clock, Guest, Kernel};

/// Softirqs of one pass end after so long (MAX_SOFTIRQ_TIME).
const PASS_NS: u64 = 2 * MILLISECOND_NS;
/// And after so many new beginnings (MAX_SOFTIRQ_RESTART).
const PASS_RESTARTS: u32 = 10;

impl Guest {
    /// At the end of an interrupt: begins a pass, unless one is in progress or ksoftirqd has taken over.
    pub(super) fn begin_softirqs_after_interrupt(&mut self, clock: &mut Clock<'_>, v: usize) {
        let taken_over = self.kernel == Kernel::V6_1 && !self.tasks[self.tasks.ksoftirqd[v]].blocked;
        if self.vcpus[v].softirqs != 0 && self.vcpus[v].pass.is_none() && !taken_over {
            self.begin_softirqs(clock, v);
        }
    }

    /// Begins a pass.
    pub(super) fn begin_softirqs(&mut self, clock: &mut Clock<'_>, v: usize) {
        self.vcpus[v].pass = Some(SoftPass { began_ns: clock.now_ns, restarts: 0 });
        self.run_softirqs(clock, v);
    }

    /// A round of the pass is done: another one if new softirqs came, as long as the pass may last.
    pub(super) fn continue_softirqs(&mut self, clock: &mut Clock<'_>, v: usize) {
        if self.vcpus[v].current == Some(self.tasks.ksoftirqd[v]) {
            // ksoftirqd is in no reader between two rounds (rcu_softirq_qs).
            self.rcu.state.context_switch(v, &mut self.rcu.effects);
            self.apply_effects(clock, Some(v));
        }
        let vcpu = &mut self.vcpus[v];
        let Some(pass) = &mut vcpu.pass else {
            return;
        };
        if vcpu.softirqs == 0 {
            vcpu.pass = None;
            return;
        }
        pass.restarts += 1;
        if pass.restarts < PASS_RESTARTS && clock.now_ns - pass.began_ns < PASS_NS && !vcpu.need_resched {
            return self.run_softirqs(clock, v);
        }
        vcpu.pass = None;
        self.wake_ksoftirqd(clock, v);
    }

    fn wake_ksoftirqd(&mut self, clock: &mut Clock<'_>, v: usize) {
        let ksoftirqd = self.tasks.ksoftirqd[v];
        self.wake_task(clock, ksoftirqd, Some(v));
    }

    /// Raises RCU's softirq. Outside interrupts and softirqs nobody would run it: ksoftirqd is woken.
    pub(super) fn raise_rcu(&mut self, clock: &mut Clock<'_>, v: usize) {
        let vcpu = &mut self.vcpus[v];
        vcpu.softirqs |= softirq::RCU;
        if !self.in_interrupt && vcpu.pass.is_none() {
            self.wake_ksoftirqd(clock, v);
        }
    }

    /// Runs each softirq that waits, once.
    fn run_softirqs(&mut self, clock: &mut Clock<'_>, v: usize) {
        let waiting = std::mem::take(&mut self.vcpus[v].softirqs);
        let mut ns = self.costs.softirq_ns;
        if waiting & softirq::TIMER != 0 {
            while let Some(sleeper) = self.vcpus[v].wheel.expire(self.jiffies.now) {
                ns += self.end_sleep(clock, v, sleeper);
            }
        }
        if waiting & softirq::NET != 0 {
            ns += self.receive_packets(clock, v);
        }
        if waiting & softirq::RCU != 0 {
            ns += self.run_rcu(clock, v);
        }
        self.vcpus[v].begin(Level::Soft, ns);
    }

    /// RCU's core, and a batch of callbacks if some are ready.
    fn run_rcu(&mut self, clock: &mut Clock<'_>, v: usize) -> u64 {
        let now_ns = clock.now_ns;
        let mut ns = self.costs.rcu_core_ns;
        let core = self.rcu.state.core(now_ns, v, &mut self.rcu.effects);
        if core.callbacks_ready {
            ns += self.run_callbacks(clock, v, ns);
        }
        self.apply_effects(clock, Some(v));
        ns
    }
}
