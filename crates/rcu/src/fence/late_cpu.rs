//! The CPU for which membarrier waits.

use std::fmt;

/// A CPU for which membarrier waits or has waited: as a rule, a vCPU that the hypervisor has descheduled. It is
/// noticed once calls take longer than [`Options::call_limit_ns`](crate::Options::call_limit_ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateCpu {
    /// Its number, as the process sees it. If the thread that calls membarrier was itself kept from running, the CPU
    /// of that thread.
    pub cpu: usize,
    /// How long it has kept the current call waiting, in nanoseconds; 0 if no call waits.
    pub waiting_ns: u64,
    /// How long callers last waited for a slow answer of the thread that calls membarrier for them, in nanoseconds.
    pub last_ns: u64,
    /// How many answers of that thread have been slow so far, for any CPU.
    pub times: u64,
}

impl fmt::Display for LateCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waiting_ns {
            0 => write!(f, "CPU {} kept membarrier waiting for {} us", self.cpu, self.last_ns / 1_000)?,
            ns => write!(f, "CPU {} has not answered membarrier for {} us", self.cpu, ns / 1_000)?,
        }
        write!(f, "; {} slow answers in this process so far", self.times)
    }
}
