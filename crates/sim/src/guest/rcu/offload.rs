//! Callback offloading (`rcu_nocbs=all`): a thread for each CPU invokes its callbacks, on any CPU, and the end of a grace
//! period finds those that are ready without the help of their CPU (kernel/rcu/tree_nocb.h).
//!
//! In Linux a further thread for each group of CPUs (`rcuog`) does what the end of a grace period does here at once; the
//! visits are charged to the grace-period kthread. Left out: the bypass list.

use super::effects::Effects;
use super::state::Rcu;

impl Rcu {
    /// A grace period has ended: wakes the threads of CPUs with ready callbacks, and asks for the grace period that the others
    /// need. Answers how many CPUs it visited.
    pub(super) fn end_offloaded(&mut self, effects: &mut Effects) -> u64 {
        if !self.params.offloads {
            return 0;
        }
        for cpu in 0..self.cpus.len() {
            let this = &mut self.cpus[cpu];
            this.callbacks.advance(self.gp_seq);
            if this.callbacks.ready() > 0 {
                effects.invoke.push(cpu as u32);
            }
            let leaf = this.leaf;
            self.accelerate(cpu, leaf);
        }
        self.cpus.len() as u64
    }

    /// A new callback. If it is the first that no grace period was asked for, and none is in progress whose end would find
    /// it, its CPU asks at once: it may stop its tick.
    #[inline]
    pub(super) fn call_offloaded(&mut self, cpu: usize, effects: &mut Effects) {
        if self.params.offloads && !self.gp_in_progress() && self.cpus[cpu].callbacks.unassigned() == 1 {
            self.accelerate_and_wake(cpu, effects);
        }
    }
}
