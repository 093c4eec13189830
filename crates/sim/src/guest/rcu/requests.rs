//! Asking for grace periods, and how a CPU learns that they started and ended.

use super::effects::Effects;
use super::sequence::{ended_between, has_started, in_progress, is_before, snapshot, started_between};
use super::state::Rcu;

impl Rcu {
    /// Asks for the grace period that ends at `target`, from a node up towards the root. True if the kthread must be
    /// woken to start it (`rcu_start_this_gp`).
    pub(super) fn request(&mut self, cpu: usize, from: u32, target: u64) -> bool {
        let mut at = from;
        let start = loop {
            let node = &mut self.tree.nodes[at as usize];
            let is_known = !is_before(node.gp_seq_needed, target) || has_started(node.gp_seq, target);
            if is_known || (at != from && in_progress(node.gp_seq)) {
                break false;
            }
            node.gp_seq_needed = target;
            if in_progress(node.gp_seq) {
                // The end of the grace period in progress will find the request.
                break false;
            }
            match node.parent {
                Some(parent) => at = parent,
                None => break !self.gp_in_progress(),
            }
        };
        // If somebody asked for one further on, this CPU need not ask again up to there.
        let needed = self.tree.nodes[at as usize].gp_seq_needed;
        if is_before(target, needed) {
            self.tree.nodes[from as usize].gp_seq_needed = needed;
            self.cpus[cpu].gp_seq_needed = needed;
        }
        self.start_wanted |= start;
        start
    }

    /// Assigns the CPU's new callbacks to the next full grace period, and asks for it. True if the kthread must be
    /// woken (`rcu_accelerate_cbs`).
    pub(super) fn accelerate(&mut self, cpu: usize, node: u32) -> bool {
        let target = snapshot(self.gp_seq);
        self.cpus[cpu].callbacks.accelerate(target) && self.request(cpu, node, target)
    }

    /// The same for a CPU that may find its request still standing (`rcu_accelerate_cbs_unlocked`).
    pub(super) fn accelerate_and_wake(&mut self, cpu: usize, effects: &mut Effects) {
        let target = snapshot(self.gp_seq);
        let this = &mut self.cpus[cpu];
        if !is_before(this.gp_seq_needed, target) {
            this.callbacks.accelerate(target);
            return;
        }
        let leaf = this.leaf;
        if self.accelerate(cpu, leaf) {
            self.wake_kthread(effects);
        }
    }

    /// The CPU learns from its leaf which grace periods ended and started since it last looked. True if the kthread
    /// must be woken (`__note_gp_changes`).
    pub(super) fn note_changes(&mut self, cpu: usize) -> bool {
        let this = &mut self.cpus[cpu];
        let (leaf, old) = (this.leaf, this.gp_seq);
        let node = &self.tree.nodes[leaf as usize];
        let (new, is_waited_for) = (node.gp_seq, node.waiting & this.bit != 0);
        if new == old {
            return false;
        }
        if ended_between(old, new) {
            this.callbacks.advance(new);
            this.core_needs_qs = false;
        } else {
            this.core_needs_qs &= is_waited_for;
        }
        if started_between(old, new) {
            this.no_qs = is_waited_for;
            this.core_needs_qs = is_waited_for;
        }
        this.gp_seq = new;
        let must_wake = self.accelerate(cpu, leaf);
        let (this, node) = (&mut self.cpus[cpu], &self.tree.nodes[leaf as usize]);
        if is_before(this.gp_seq_needed, node.gp_seq_needed) {
            this.gp_seq_needed = node.gp_seq_needed;
        }
        must_wake
    }

    /// The same, and wakes the kthread if needed (`note_gp_changes`).
    pub(super) fn note_changes_and_wake(&mut self, cpu: usize, effects: &mut Effects) {
        if self.note_changes(cpu) {
            self.wake_kthread(effects);
        }
    }
}

#[cfg(test)]
#[path = "tests/requests.rs"]
mod tests;
