//! Constants of Linux's fair schedulers, so that a scenario can change them.
//!
//! Values are those of `kernel/sched/fair.c`, `features.h` and `topology.c`; each field names its kernel.

use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};

/// What can be tuned. Times are wall time of the level at which the scheduler works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Ticks a second (`CONFIG_HZ`), at least 1.
    pub hz: u64,
    /// EEVDF: what an entity asks for at a time. 0.70 ms x scale (6.15 and later; 0.75 ms before).
    pub base_slice_ns: u64,
    /// EEVDF: the running entity keeps the CPU until its slice ends, if it stays eligible (feature RUN_TO_PARITY, on).
    /// Without, it is protected for the unscaled base slice of 0.70 ms only.
    pub run_to_parity: bool,
    /// CFS: time in which each of a few runnable entities should run once. 6 ms x scale.
    pub latency_ns: u64,
    /// CFS: what an entity runs at least before others are looked at. 0.75 ms x scale.
    pub min_granularity_ns: u64,
    /// CFS: how far behind (at weight 1024) a woken entity must be to preempt. 1 ms x scale.
    pub wakeup_granularity_ns: u64,
    /// CFS: a sleeper's bonus is half of the latency, not all (feature GENTLE_FAIR_SLEEPERS, on).
    pub gentle_sleepers: bool,
    /// CPUs that share a last-level cache, 1 to 64: the domain of the search for an idle CPU and of balancing.
    pub domain_cpus: u32,
    /// Time between two periodic balancings of a busy CPU: 1 ms a CPU of the domain (`balance_interval`), x 16 when
    /// busy (`busy_factor`, 5.10 and later).
    pub balance_interval_ns: u64,
}

/// Unscaled base slice of EEVDF (6.15 and later).
pub const BASE_SLICE_NS: u64 = 700_000;
/// CPUs a domain has at most: it is one word of a bitmap.
pub const MAX_DOMAIN_CPUS: u32 = 64;

impl Tunables {
    /// The defaults of a machine with that many CPUs: latencies are scaled by `1 + log2(min(cpus, 8))`
    /// (SCHED_TUNABLESCALING_LOG), and domains are as equal as possible.
    pub fn linux(cpus: usize, hz: u64) -> Tunables {
        let cpus = (cpus.max(1) as u64).min(u32::MAX as u64);
        let scale = 1 + cpus.min(8).ilog2() as u64;
        let domain_cpus = cpus.div_ceil(cpus.div_ceil(MAX_DOMAIN_CPUS as u64));
        Tunables {
            hz: hz.max(1),
            base_slice_ns: BASE_SLICE_NS * scale,
            run_to_parity: true,
            latency_ns: 6 * MILLISECOND_NS * scale,
            min_granularity_ns: 750_000 * scale,
            wakeup_granularity_ns: MILLISECOND_NS * scale,
            gentle_sleepers: true,
            domain_cpus: domain_cpus as u32,
            balance_interval_ns: domain_cpus * MILLISECOND_NS * 16,
        }
    }

    /// Time between ticks.
    pub fn tick_ns(&self) -> u64 {
        SECOND_NS / self.hz.clamp(1, SECOND_NS)
    }
}
