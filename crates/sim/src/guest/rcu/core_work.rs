//! The RCU softirq, up to the callbacks (`rcu_core`).

use super::effects::Effects;
use super::state::Rcu;

/// What the softirq did and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreWork {
    /// The CPU learned of a grace period that started or ended.
    pub noted: bool,
    /// The CPU reported its quiescent state.
    pub reported: bool,
    /// Callbacks are ready: [`Rcu::begin_batch`] next.
    pub callbacks_ready: bool,
}

impl Rcu {
    /// The RCU softirq without its callbacks: learns of grace periods, reports a quiescent state, assigns callbacks
    /// that came while no grace period was in progress, and asks for one.
    pub fn core(&mut self, now_ns: u64, cpu: usize, effects: &mut Effects) -> CoreWork {
        let noted = self.tree.nodes[self.cpus[cpu].leaf as usize].gp_seq != self.cpus[cpu].gp_seq;
        self.note_changes_and_wake(cpu, effects);
        let this = &self.cpus[cpu];
        let reported = this.core_needs_qs && !this.no_qs;
        if reported {
            self.report(now_ns, cpu, effects);
        }
        if !self.gp_in_progress() && self.cpus[cpu].callbacks.unassigned() > 0 {
            self.accelerate_and_wake(cpu, effects);
        }
        CoreWork {
            noted,
            reported,
            callbacks_ready: self.cpus[cpu].callbacks.ready() > 0 && !self.params.offloads,
        }
    }

    /// Reports a quiescent state to the leaf (`rcu_report_qs_rdp`). The CPU knows of all grace periods, so the state
    /// belongs to the current one.
    pub(super) fn report(&mut self, now_ns: u64, cpu: usize, effects: &mut Effects) {
        let this = &mut self.cpus[cpu];
        let (leaf, bit) = (this.leaf, this.bit);
        this.core_needs_qs = false;
        if self.tree.nodes[leaf as usize].waiting & bit == 0 {
            return;
        }
        // The grace period cannot end before this, so all callbacks of this CPU can wait for the next one.
        self.accelerate(cpu, leaf);
        self.calm(cpu);
        self.clear_waiting(now_ns, leaf, bit, effects);
    }

    /// No scan need ask that CPU any more (`rcu_disable_urgency_upon_qs`).
    pub(super) fn calm(&mut self, cpu: usize) {
        self.cpus[cpu].urgent = false;
        self.cpus[cpu].heavy = false;
    }
}
