//! A remedy that Linux does not have: a grace period interrupts the CPUs that it waits for, instead of waiting until their
//! ticks notice it. What was interrupted in the kernel reports at its next switch; anything else at once. A CPU that its host
//! descheduled takes the interrupt when it runs again.

use super::effects::{Context, Effects};
use super::state::Rcu;

impl Rcu {
    /// Asks a CPU that a scan did not find idle. The kthread's own CPU switches soon, and needs no interrupt.
    pub(super) fn ask(&mut self, cpu: usize, own: usize, effects: &mut Effects) {
        let this = &mut self.cpus[cpu];
        if cpu != own {
            effects.ask.push(cpu as u32);
        } else if this.no_qs {
            (this.asked, this.urgent) = (true, true);
        } else {
            effects.report.push(cpu as u32);
        }
    }

    /// The interrupt of [`Effects::ask`].
    pub fn asked_ipi(&mut self, now_ns: u64, cpu: usize, context: Context, effects: &mut Effects) {
        self.note_changes_and_wake(cpu, effects);
        let this = &mut self.cpus[cpu];
        if !this.core_needs_qs {
            return;
        }
        if context == Context::Kernel && this.no_qs {
            (this.asked, this.urgent) = (true, true);
            effects.resched.push(cpu as u32);
            return;
        }
        this.no_qs = false;
        self.report(now_ns, cpu, effects);
    }

    /// The CPU reports the quiescent state of [`Effects::report`].
    pub fn report_asked(&mut self, now_ns: u64, cpu: usize, effects: &mut Effects) {
        let this = &self.cpus[cpu];
        if this.core_needs_qs && !this.no_qs {
            self.report(now_ns, cpu, effects);
        }
    }
}

#[cfg(test)]
#[path = "tests/ask.rs"]
mod tests;
