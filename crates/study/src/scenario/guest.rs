//! The machine under test.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::guest_remedies::{AskFirst, Pressure, Slab};

/// The machine under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Guest {
    /// Virtual CPUs. Real Xen runs guests with one.
    #[schemars(range(min = 1, max = 64))]
    pub vcpus: usize,
    /// Memory, in MiB.
    #[schemars(range(min = 128, max = 1 << 20))]
    pub memory_mib: u64,
    /// The guest's kernel: a series of the distribution's kernels, such as "6.12", or the file of a kernel
    /// with BTF; empty for the distribution's current one. The simulator knows "6.1", its default, and
    /// "6.12".
    pub kernel: String,
    /// Words appended to the kernel's command line, at most 1024 bytes. Only in real guests.
    pub append: String,
    /// How the guest is executed.
    pub accelerator: Accelerator,
    /// A guest that is not ready after this time, in ms, has failed.
    #[schemars(range(min = 1_000, max = 3_600_000))]
    pub boot_limit_ms: u64,
    /// Frequency of the guest's timer tick, per second (CONFIG_HZ; Debian has 250).
    #[schemars(range(min = 100, max = 1_000))]
    pub hz: u64,
    /// How many times faster the guest is than those that the costs of the simulator were calibrated on,
    /// which were emulated.
    #[schemars(range(min = 0.01, max = 1_000.0))]
    pub speed: f64,
    /// CPU time that a thread of the emulator takes to deliver the timer interrupts of its vCPUs, in ns. They
    /// come late while the thread waits for a pCPU. 0 where the host's kernel delivers them, as with KVM.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub timer_thread_ns: u64,
    /// How the guest's spinlocks are handed over.
    pub spinlocks: Spinlocks,
    /// Parameters of the guest's RCU.
    pub rcu: Rcu,
    /// Settings of the remedy `deferred-aware-slab`.
    pub slab: Slab,
    /// Settings of the remedy `back-pressure`.
    pub pressure: Pressure,
    /// Settings of the remedy `ask-first`.
    pub ask_first: AskFirst,
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
            slab: Slab::default(),
            pressure: Pressure::default(),
            ask_first: AskFirst::default(),
        }
    }
}

/// How a guest's spinlocks are handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spinlocks {
    /// In the order of arrival, as on bare metal.
    #[default]
    Queued,
    /// To vCPUs that run; waiters halt. Guests under KVM have these.
    Paravirtual,
    /// To any vCPU that runs; waiters spin. Guests have these that see a hypervisor without paravirtual locks, as
    /// under QEMU without KVM.
    TestAndSet,
}

/// The name in a scenario file.
impl fmt::Display for Spinlocks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

/// Parameters of the guest's RCU, with the kernel's names (`rcutree.*` in kernel-parameters.txt) and defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rcu {
    /// Most callbacks that are invoked in one batch.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub blimit: i64,
    /// A vCPU with more callbacks than this invokes them without a limit.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub qhimark: i64,
    /// A vCPU with fewer callbacks than this has its limit again. At most `qhimark`.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub qlowmark: i64,
    /// Jiffies from a grace period's start to the first forcing of quiescent states; -1 for the kernel's own
    /// rule.
    #[schemars(range(min = -1, max = 10_000_000))]
    pub jiffies_till_first_fqs: i64,
    /// Jiffies from one forcing of quiescent states to the next; -1 for the kernel's own rule.
    #[schemars(range(min = -1, max = 10_000_000))]
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
    /// The parameters that differ from the kernel's defaults, for a kernel's command line.
    pub fn command_line(&self) -> String {
        let [ours, defaults] =
            [self, &Rcu::default()].map(|rcu| Table::try_from(rcu).expect("names and numbers"));
        let changed = ours.iter().filter(|(name, value)| defaults.get(*name) != Some(*value));
        changed.map(|(name, value)| format!("rcutree.{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// How the guest is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// KVM if a probe guest reaches user space with it within seconds, otherwise TCG.
    Auto,
    /// Hardware virtualisation.
    Kvm,
    /// Emulation, with one host thread per vCPU.
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
