//! Extended quiescent states: what a scan sees of CPUs that do nothing, or that their host took away.

use super::effects::Effects;
use super::state::Rcu;

impl Rcu {
    /// The CPU is idle: from now on a scan reports it quiescent.
    #[inline]
    pub fn idle_enter(&mut self, cpu: usize) {
        let this = &mut self.cpus[cpu];
        debug_assert!(!this.in_extended_qs());
        this.idle_steps += 1;
    }

    /// The CPU is idle no more: it has a task to run, or takes an interrupt. After the interrupt and the softirqs that
    /// it raised, an idle CPU calls [`Rcu::idle_enter`] again.
    #[inline]
    pub fn idle_exit(&mut self, cpu: usize) {
        let this = &mut self.cpus[cpu];
        debug_assert!(this.in_extended_qs());
        this.idle_steps += 1;
    }

    /// The host descheduled the vCPU, or runs it again. Only the counterfactual
    /// [`super::Params::descheduled_is_quiescent`] takes notice; called for any CPU at any time.
    pub fn set_descheduled(&mut self, now_ns: u64, cpu: usize, is_descheduled: bool, effects: &mut Effects) {
        if !self.params.descheduled_is_quiescent {
            return;
        }
        let this = &self.cpus[cpu];
        let (leaf, bit) = (this.leaf, this.bit);
        let mask = &mut self.tree.nodes[leaf as usize].descheduled;
        if !is_descheduled {
            *mask &= !bit;
            return;
        }
        *mask |= bit;
        self.clear_waiting(now_ns, leaf, bit, effects);
        self.clear_expedited(cpu, leaf, bit, effects);
    }
}
