//! Expedited grace periods: every CPU that is not idle is interrupted and asked to switch
//! (`synchronize_rcu_expedited`, kernel/rcu/tree_exp.h).
//!
//! In Linux a worker selects the CPUs and wakes the waiters. Here the caller selects, and who reports last wakes and
//! starts the next one if somebody waits for it: what the worker's switches cost is the guest's to charge.

use std::collections::VecDeque;

use super::effects::{Context, Effects};
use super::sequence::{end, in_progress, is_before, snapshot, start};
use super::state::Rcu;
use super::tree::Kind;
use crate::bits::bits;

/// The current expedited grace period, and who waits.
#[derive(Debug, Default)]
pub(super) struct Expedited {
    pub seq: u64,
    /// For each waiter the number at which its grace period will have ended, and its token; in order of both.
    waiters: VecDeque<(u64, u64)>,
}

impl Rcu {
    /// A task on that CPU, in no read-side critical section, waits for an expedited grace period. Its token is in
    /// [`Effects::wake`] when that is over, possibly of this very call.
    pub fn start_expedited(&mut self, cpu: usize, token: u64, effects: &mut Effects) {
        let state = &mut self.expedited;
        state.waiters.push_back((snapshot(state.seq), token));
        if !in_progress(state.seq) {
            self.select(cpu, effects);
        }
    }

    /// The interrupt of an expedited grace period (`rcu_exp_handler`). The switch that it asks for reports, also where
    /// it interrupted user mode: without a preemption counter RCU cannot tell.
    pub fn expedited_ipi(&mut self, cpu: usize, context: Context, effects: &mut Effects) {
        let this = &mut self.cpus[cpu];
        let is_awaited = self.tree.nodes[this.leaf as usize].expedited & this.bit != 0;
        if !is_awaited || this.no_expedited_qs {
            return;
        }
        if context == Context::Idle {
            self.report_expedited(cpu, effects);
            return;
        }
        this.no_expedited_qs = true;
        this.urgent = true;
        effects.resched.push(cpu as u32);
    }

    /// Starts one: the caller's CPU and those that are idle are quiescent, the others are interrupted
    /// (`sync_rcu_exp_select_cpus`).
    fn select(&mut self, cpu: usize, effects: &mut Effects) {
        self.expedited.seq = start(self.expedited.seq);
        self.tree.set(Kind::Expedited);
        for leaf in self.tree.leaves() {
            let node = &self.tree.nodes[leaf];
            let mut quiescent = node.descheduled & node.expedited;
            for bit in bits(node.expedited & !node.descheduled) {
                let other = node.first_cpu + bit as usize;
                if other == cpu || self.cpus[other].in_extended_qs() {
                    quiescent |= 1 << bit;
                } else {
                    effects.ipi.push(other as u32);
                }
            }
            self.clear_expedited(cpu, leaf as u32, quiescent, effects);
        }
    }

    /// The CPU reports (`rcu_report_exp_rdp`).
    pub(super) fn report_expedited(&mut self, cpu: usize, effects: &mut Effects) {
        let this = &mut self.cpus[cpu];
        this.no_expedited_qs = false;
        let (leaf, bit) = (this.leaf, this.bit);
        self.clear_expedited(cpu, leaf, bit, effects);
    }

    /// These CPUs of a leaf are quiescent, `cpu` at this very moment. If they were the last, wakes those whose grace
    /// period that was, and starts the next one for those who came later: for that one, too, `cpu` is quiescent.
    pub(super) fn clear_expedited(&mut self, cpu: usize, leaf: u32, mask: u64, effects: &mut Effects) {
        if !self.tree.clear(Kind::Expedited, leaf, mask) {
            return;
        }
        let state = &mut self.expedited;
        state.seq = end(state.seq);
        let done = state.waiters.iter().take_while(|waiter| !is_before(state.seq, waiter.0)).count();
        effects.wake.extend(state.waiters.drain(..done).map(|(_, token)| token));
        if !state.waiters.is_empty() {
            self.select(cpu, effects);
        }
    }
}

#[cfg(test)]
#[path = "tests/expedited.rs"]
mod tests;
