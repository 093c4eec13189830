//! The events at which a CPU notices a quiescent state: ticks, context switches, voluntary preemption points.

use super::effects::{Context, Effects};
use super::state::Rcu;

impl Rcu {
    /// The scheduler's tick (`rcu_sched_clock_irq`): a quiescent state unless it interrupted the kernel. In the kernel
    /// it asks for a context switch instead, if a scan needs a quiescent state soon.
    #[inline]
    pub fn tick(&mut self, cpu: usize, context: Context, effects: &mut Effects) {
        let this = &mut self.cpus[cpu];
        let is_quiescent = context != Context::Kernel;
        if std::mem::take(&mut this.urgent) && !is_quiescent {
            effects.resched.push(cpu as u32);
        }
        if is_quiescent {
            self.quiescent(cpu, effects);
        }
        if self.is_pending(cpu) {
            effects.softirq.push(cpu as u32);
        }
    }

    /// A context switch on that CPU (`rcu_note_context_switch`).
    #[inline]
    pub fn context_switch(&mut self, cpu: usize, effects: &mut Effects) {
        self.quiescent(cpu, effects);
        self.answer_scan(cpu);
    }

    /// A voluntary preemption point that does not switch (`cond_resched`, `rcu_all_qs`): a quiescent state only if a
    /// scan asked for one.
    #[inline]
    pub fn voluntary(&mut self, cpu: usize, effects: &mut Effects) {
        if self.cpus[cpu].urgent {
            self.answer_scan(cpu);
            self.quiescent(cpu, effects);
        }
    }

    /// Answers a scan that asked this CPU for help. If it asked for a step of the idle counter, the CPU makes two, as
    /// if it had been idle for a moment; the next scan sees that.
    #[inline]
    fn answer_scan(&mut self, cpu: usize) {
        let this = &mut self.cpus[cpu];
        if std::mem::take(&mut this.urgent) && std::mem::take(&mut this.heavy) {
            this.idle_steps += 2;
        }
    }

    /// Notes that the CPU is in a quiescent state (`rcu_qs`). An expedited grace period learns of it at once; to a
    /// normal one, the CPU's next softirq reports it.
    #[inline]
    fn quiescent(&mut self, cpu: usize, effects: &mut Effects) {
        let this = &mut self.cpus[cpu];
        if !(this.no_qs || this.no_expedited_qs) {
            return;
        }
        this.no_qs = false;
        if std::mem::take(&mut this.asked) {
            effects.report.push(cpu as u32);
        }
        if this.no_expedited_qs {
            self.report_expedited(cpu, effects);
        }
    }

    /// Whether RCU's softirq has work on that CPU (`rcu_pending`).
    #[inline]
    fn is_pending(&self, cpu: usize) -> bool {
        let this = &self.cpus[cpu];
        let in_progress = self.gp_in_progress();
        (this.core_needs_qs && !this.no_qs && in_progress)
            || (this.callbacks.ready() > 0 && !self.params.offloads)
            || (!in_progress && this.callbacks.unassigned() > 0)
            || self.tree.nodes[this.leaf as usize].gp_seq != this.gp_seq
    }
}

#[cfg(test)]
#[path = "tests/tick.rs"]
mod tests;
