//! The scan for CPUs that are quiescent without knowing (`force_qs_rnp`).

use super::effects::Effects;
use super::state::Rcu;
use crate::bits::bits;

/// What a scan does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// It is the first one of the grace period.
    pub is_first: bool,
    /// It asks those for a report that it does not find idle; the kthread runs on that CPU.
    pub asks_as: Option<usize>,
}

impl Rcu {
    /// One scan over the CPUs that the grace period still waits for. The first one of a grace period looks which CPUs
    /// are idle now, later ones also which were idle since
    /// (`rcu_gp_fqs`). Answers how many nodes and CPUs it visited.
    pub(super) fn scan(&mut self, now_ns: u64, jiffies: u64, scan: Scan, effects: &mut Effects) -> u64 {
        let mut visited = 0;
        self.scans += 1;
        self.overloaded = std::mem::take(&mut self.overloaded_next);
        for leaf in self.tree.leaves() {
            let node = &self.tree.nodes[leaf];
            let (waiting, first_cpu) = (node.waiting, node.first_cpu);
            self.overloaded_next |= node.overloaded != 0;
            visited += 1;
            let mut quiescent = 0;
            for bit in bits(waiting) {
                let cpu = first_cpu + bit as usize;
                visited += 1;
                let is_quiescent =
                    if scan.is_first { self.look(cpu) } else { self.look_again(cpu, jiffies, effects) };
                if is_quiescent {
                    quiescent |= 1 << bit;
                    self.calm(cpu);
                } else if let Some(own) = scan.asks_as {
                    self.ask(cpu, own, effects);
                }
            }
            self.clear_waiting(now_ns, leaf as u32, quiescent, effects);
        }
        self.look_wanted = false;
        visited
    }

    /// First look: whether the CPU is idle (`dyntick_save_progress_counter`).
    fn look(&mut self, cpu: usize) -> bool {
        let this = &mut self.cpus[cpu];
        this.steps_seen = this.idle_steps;
        this.in_extended_qs()
    }

    /// Later looks: whether it was idle since the first. If not, asks it for help, the harder the older the grace
    /// period is (`rcu_implicit_dynticks_qs`).
    fn look_again(&mut self, cpu: usize, jiffies: u64, effects: &mut Effects) -> bool {
        let this = &mut self.cpus[cpu];
        if this.idle_steps != this.steps_seen {
            return true;
        }
        let (age, help) = (jiffies - self.gp_start, self.delays.help);
        let is_long = age > self.delays.stall / 2;
        if !this.heavy && (age > 2 * help || is_long || self.overloaded) {
            this.heavy = true;
            this.urgent = true;
        } else if age > help {
            this.urgent = true;
        }
        if is_long && jiffies > this.rescheduled_at + help {
            effects.resched.push(cpu as u32);
            this.rescheduled_at = jiffies;
        }
        false
    }
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
