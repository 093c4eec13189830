//! New callbacks, and what is done when a CPU has too many of them.

use super::callbacks::Callback;
use super::effects::Effects;
use super::state::Rcu;

impl Rcu {
    /// Queues a callback for after a grace period (`call_rcu`, with interrupts enabled).
    #[inline]
    pub fn call(&mut self, cpu: usize, callback: Callback, effects: &mut Effects) {
        let this = &mut self.cpus[cpu];
        let is_overloaded = this.callbacks.len() >= self.params.overload();
        let leaf = &mut self.tree.nodes[this.leaf as usize];
        if is_overloaded != (leaf.overloaded & this.bit != 0) {
            leaf.overloaded ^= this.bit;
        }
        this.callbacks.push(callback);
        self.backlog += 1;
        if this.in_extended_qs() {
            effects.softirq.push(cpu as u32);
        }
        self.call_offloaded(cpu, effects);
        let this = &self.cpus[cpu];
        if this.callbacks.len() > this.looked_at + self.params.qhimark {
            self.relieve(cpu, effects);
        }
    }

    /// Queues a callback behind the last one of that CPU, without asking for a grace period of its own. False, and
    /// nothing is done, if the CPU has none (`rcu_barrier_entrain`).
    pub fn entrain(&mut self, cpu: usize, callback: Callback) -> bool {
        let is_queued = self.cpus[cpu].callbacks.entrain(callback);
        self.backlog += u64::from(is_queued);
        is_queued
    }

    /// Too many callbacks since the CPU last looked: hurries the grace period on, unless another CPU just did, or the
    /// new callback is the only one that waits (`__call_rcu_core`).
    fn relieve(&mut self, cpu: usize, effects: &mut Effects) {
        self.note_changes_and_wake(cpu, effects);
        if !self.gp_in_progress() {
            self.accelerate_and_wake(cpu, effects);
            return;
        }
        let this = &mut self.cpus[cpu];
        this.blimit = self.params.max_blimit;
        let was_forced = this.scans_seen != self.scans;
        this.scans_seen = self.scans;
        this.looked_at = this.callbacks.len();
        if !was_forced && this.callbacks.pending() > 1 && !self.look_wanted {
            self.look_wanted = true;
            self.wake_kthread(effects);
        }
    }
}

#[cfg(test)]
#[path = "tests/call.rs"]
mod tests;
