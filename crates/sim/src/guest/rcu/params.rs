//! Tunables, with the defaults of Linux 6.1. Those that are `None` are computed from HZ and the number of CPUs.

use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};

/// Tunables of one guest's RCU. Times are in jiffies unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Ticks per second (`CONFIG_HZ`); Debian: 250.
    pub hz: u64,
    /// Callbacks that a batch invokes at least before it gives way (`rcutree.blimit`).
    pub blimit: u64,
    /// `blimit` of a CPU under callback pressure (`DEFAULT_MAX_RCU_BLIMIT`).
    pub max_blimit: u64,
    /// Callbacks queued on a CPU since it last looked beyond which it forces quiescent states (`rcutree.qhimark`).
    pub qhimark: u64,
    /// Callbacks left at which a CPU under pressure goes back to `blimit` (`rcutree.qlowmark`).
    pub qlowmark: u64,
    /// Callbacks on one CPU from which RCU counts as overloaded (`rcutree.qovld`); `None`: twice `qhimark`.
    pub qovld: Option<u64>,
    /// A batch is at least the ready callbacks shifted right by this (`rcutree.rcu_divisor`).
    pub divisor: u32,
    /// Longest time of a batch of more than 100, in nanoseconds (`rcutree.rcu_resched_ns`).
    pub resched_ns: u64,
    /// Children of an inner node (`CONFIG_RCU_FANOUT`), at most 64.
    pub fanout: usize,
    /// CPUs of a leaf (`CONFIG_RCU_FANOUT_LEAF`), at most 64.
    pub leaf: usize,
    /// From a grace period's start to its first scan for idle CPUs.
    pub jiffies_till_first_fqs: Option<u64>,
    /// From one scan to the next.
    pub jiffies_till_next_fqs: Option<u64>,
    /// Age at which a grace period asks CPUs for help; at twice that age, harder (`jiffies_to_sched_qs`).
    pub jiffies_to_sched_qs: Option<u64>,
    /// Age from which a grace period counts as stalled; from half of it, holdouts are rescheduled.
    pub stall_jiffies: Option<u64>,
    /// Remedy: CPUs are asked for a report by an interrupt, when a grace period starts or at its first scan.
    pub asks: Option<Ask>,
    /// Remedy: callbacks are invoked by threads, and grace periods learn of them without their CPU (`rcu_nocbs=all`).
    pub offloads: bool,
    /// Counterfactual: a vCPU that the host descheduled counts as quiescent at once (no reader preemption).
    pub descheduled_is_quiescent: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            hz: 250,
            blimit: 10,
            max_blimit: 10_000,
            qhimark: 10_000,
            qlowmark: 100,
            qovld: None,
            divisor: 7,
            resched_ns: 3 * MILLISECOND_NS,
            fanout: 64,
            leaf: 16,
            jiffies_till_first_fqs: None,
            jiffies_till_next_fqs: None,
            jiffies_to_sched_qs: None,
            stall_jiffies: None,
            asks: None,
            offloads: false,
            descheduled_is_quiescent: false,
        }
    }
}

/// When CPUs are asked for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// When a grace period starts.
    AtStart,
    /// At its first scan.
    AtFirstScan,
}

/// Seconds until a stall (`CONFIG_RCU_CPU_STALL_TIMEOUT`).
const STALL_S: u64 = 21;
/// CPUs for which the delays grow by a jiffy (`RCU_JIFFIES_FQS_DIV`).
const CPUS_PER_JIFFY: u64 = 256;

/// Delays of the grace-period kthread, in jiffies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delays {
    /// To the first scan.
    pub first: u64,
    /// Between scans.
    pub next: u64,
    /// To the first request for help.
    pub help: u64,
    /// To a stall.
    pub stall: u64,
}

impl Params {
    /// The delays for that many CPUs (`rcu_init_geometry`, `adjust_jiffies_till_sched_qs`).
    pub(super) fn delays(&self, cpus: usize) -> Delays {
        let grown = cpus as u64 / CPUS_PER_JIFFY;
        let scan = 1 + u64::from(self.hz > 250) + u64::from(self.hz > 500) + grown;
        // The kernel bounds both delays by a second and does not scan again without a pause.
        let first = self.jiffies_till_first_fqs.unwrap_or(scan).min(self.hz);
        let next = self.jiffies_till_next_fqs.unwrap_or(scan).clamp(1, self.hz);
        let help = self.jiffies_to_sched_qs.unwrap_or((first + 2 * next).max(self.hz / 10 + grown));
        Delays { first, next, help, stall: self.stall_jiffies.unwrap_or(STALL_S * self.hz) }
    }

    /// Callbacks on one CPU from which RCU is overloaded.
    pub(super) fn overload(&self) -> u64 {
        self.qovld.unwrap_or(2 * self.qhimark)
    }

    /// `resched_ns` within the kernel's bounds of a millisecond and a second.
    pub(super) fn batch_ns(&self) -> u64 {
        self.resched_ns.clamp(MILLISECOND_NS, SECOND_NS)
    }
}
