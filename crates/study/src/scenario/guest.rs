//! The machine under test.

use serde::{Deserialize, Serialize};

/// The machine under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Guest {
    /// Virtual CPUs.
    pub vcpus: usize,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// A series of the distribution's kernels, such as "6.12", or the file of a kernel with BTF; empty for the distribution's
    /// current one. The simulator knows "6.1", which is its default, and "6.12".
    pub kernel: String,
    /// Words appended to the kernel's command line.
    pub append: String,
    /// How the guest is executed.
    pub accelerator: Accelerator,
    /// A guest that is not ready by then has failed.
    pub boot_limit_ms: u64,
    /// Frequency of the guest's timer tick, per second (CONFIG_HZ; 250 is Debian's). Only the simulator can change it.
    pub hz: u64,
    /// How much faster than the guests that the simulator's costs were calibrated on, which were emulated. Only on
    /// the simulator.
    pub speed: f64,
    /// CPU time that a thread of the emulator takes to deliver the timer interrupts of its vCPUs, which come late while it
    /// waits for a pCPU; 0 where the host's kernel delivers them, as with KVM. Only on the simulator.
    pub timer_thread_ns: u64,
    /// How the guest's spinlocks are handed over. Only on the simulator.
    pub spinlocks: Spinlocks,
    /// Parameters of the guest's RCU.
    pub rcu: Rcu,
}

impl Default for Guest {
    fn default() -> Self {
        Guest {
            vcpus: 2,
            memory_mib: 512,
            kernel: String::new(),
            append: String::new(),
            accelerator: Accelerator::Auto,
            boot_limit_ms: 60_000,
            hz: 250,
            speed: 1.0,
            timer_thread_ns: 0,
            spinlocks: Spinlocks::default(),
            rcu: Rcu::default(),
        }
    }
}

/// How a guest's spinlocks are handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spinlocks {
    /// In the order of arrival, as on bare metal.
    #[default]
    Queued,
    /// To vCPUs that run; waiters halt. As guests have them under KVM.
    Paravirtual,
    /// To any vCPU that runs; nobody halts. As guests have them that see a hypervisor and no paravirtual locks, under QEMU without
    /// KVM.
    #[serde(rename = "test-and-set")]
    TestAndSet,
}

impl Spinlocks {
    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Spinlocks::Queued => "queued",
            Spinlocks::Paravirtual => "paravirtual",
            Spinlocks::TestAndSet => "test-and-set",
        }
    }
}

/// Parameters of the guest's RCU, with the kernel's names (`rcutree.*` in kernel-parameters.txt) and defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rcu {
    /// Callbacks that are invoked at most in one batch.
    pub blimit: i64,
    /// Above so many callbacks on one vCPU the batch has no limit.
    pub qhimark: i64,
    /// Below so many it has its limit again.
    pub qlowmark: i64,
    /// Jiffies from a grace period's start to the first forcing of quiescent states; -1 for the kernel's own rule.
    pub jiffies_till_first_fqs: i64,
    /// Jiffies from one forcing of quiescent states to the next; -1 for the kernel's own rule.
    pub jiffies_till_next_fqs: i64,
}

impl Default for Rcu {
    fn default() -> Self {
        Rcu {
            blimit: 10,
            qhimark: 10_000,
            qlowmark: 100,
            jiffies_till_first_fqs: -1,
            jiffies_till_next_fqs: -1,
        }
    }
}

impl Rcu {
    /// Name and value of each parameter.
    pub fn parameters(&self) -> [(&'static str, i64); 5] {
        [
            ("blimit", self.blimit),
            ("qhimark", self.qhimark),
            ("qlowmark", self.qlowmark),
            ("jiffies_till_first_fqs", self.jiffies_till_first_fqs),
            ("jiffies_till_next_fqs", self.jiffies_till_next_fqs),
        ]
    }

    /// Words for a real kernel's command line: the parameters that differ from the kernel's defaults.
    pub fn command_line(&self) -> String {
        let defaults = Rcu::default().parameters();
        let changed = self.parameters().into_iter().zip(defaults).filter(|(ours, default)| ours != default);
        changed.map(|((name, value), _)| format!("rcutree.{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// How the guest is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// KVM if a probe guest reaches user space under it within seconds, else TCG.
    Auto,
    /// Hardware virtualisation.
    Kvm,
    /// Emulation, one host thread a vCPU.
    Tcg,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_parameters_reach_the_kernel_s_command_line() {
        assert_eq!(Rcu::default().command_line(), "");
        let rcu = Rcu { blimit: 100, jiffies_till_next_fqs: 3, ..Rcu::default() };
        assert_eq!(rcu.command_line(), "rcutree.blimit=100 rcutree.jiffies_till_next_fqs=3");
    }
}
