//! The simulated host, and the limits of a simulation. The ground `xen` takes its scheduler from here, too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Boost, CoSchedule, ShortSlices, SliceGrant, SteadyCpus, Xen};

/// The simulated host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostModel {
    /// Physical CPUs; 0 for as many as the guest has vCPUs.
    #[schemars(range(min = 0, max = 1_024))]
    pub pcpus: usize,
    /// The host's CPU scheduler.
    pub scheduler: SchedulerKind,
    /// Frequency of the host's timer tick, per second.
    #[schemars(range(min = 100, max = 1_000))]
    pub hz: u64,
    /// Time that a context switch takes, in ns.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub switch_ns: u64,
    /// Time that a vCPU loses to cold caches after another one ran in its place, in ns.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub cold_cache_ns: u64,
    /// Wake-ups of the host's own threads, per second and pCPU. This default and that of `noise_ns` are
    /// calibrated on the baselines of `records/*.json`: vCPUs alone on their pCPUs wait 2 % of the time, and
    /// are off for 0.5 ms or more about once a second.
    #[schemars(range(min = 0, max = 100_000))]
    pub noise_per_s: u64,
    /// How long each of the host's own threads runs after a wake-up, mean, in ns. All of them together, with
    /// `noise_tail`, may take 90 % of a pCPU.
    #[schemars(range(min = 0, max = 100_000_000))]
    pub noise_ns: u64,
    /// Further threads of the host's own, at most 8, which run less often and longer. With the first ones
    /// they make a mixture of exponential distributions: it has the long tail of real hosts, which a single
    /// one lacks.
    pub noise_tail: Vec<NoiseTail>,
    /// Whether each of the host's own threads is bound to its pCPU. Otherwise they run where there is room,
    /// as most threads of a real host do: there, one vCPU on two pCPUs is off 5 times a second, against 1,300
    /// times where both pCPUs are busy.
    pub noise_bound: bool,
    /// Length of a slice, in us (under CFS the least one: `min_granularity`); 0 for the scheduler's own. Only Linux's
    /// schedulers read it.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub slice_us: u64,
    /// Settings of the remedy `boost`.
    pub boost: Boost,
    /// Settings of the remedy `slice-grant`.
    pub slice_grant: SliceGrant,
    /// Setting of the remedy `short-slices`.
    pub short_slices: ShortSlices,
    /// Settings of the remedy `co-schedule`.
    pub co_schedule: CoSchedule,
    /// Settings of the remedy `steady-cpus`.
    pub steady_cpus: SteadyCpus,
    /// Settings of Xen's schedulers.
    pub xen: Xen,
}

impl Default for HostModel {
    fn default() -> Self {
        HostModel {
            pcpus: 0,
            scheduler: SchedulerKind::Eevdf,
            hz: 250,
            switch_ns: 1_500,
            cold_cache_ns: 20_000,
            noise_per_s: 220,
            noise_ns: 90_000,
            noise_tail: Vec::new(),
            noise_bound: true,
            slice_us: 0,
            boost: Boost::default(),
            slice_grant: SliceGrant::default(),
            short_slices: ShortSlices::default(),
            co_schedule: CoSchedule::default(),
            steady_cpus: SteadyCpus::default(),
            xen: Xen::default(),
        }
    }
}

impl HostModel {
    /// Physical CPUs of the host if the guest under test has this many vCPUs.
    pub fn pcpus_for(&self, vcpus: usize) -> usize {
        if self.pcpus == 0 { vcpus } else { self.pcpus }
    }

    /// The scheduler and its settings that differ from the defaults, for captions.
    pub fn scheduler_text(&self) -> String {
        let name = self.scheduler.name();
        match self.slice_us {
            _ if self.scheduler.is_xen() => self.xen.text(self.scheduler),
            0 => name.into(),
            // CFS has no slices of a fixed length, only a least one.
            slice_us if self.scheduler == SchedulerKind::Cfs => {
                format!("{name} with a minimal granularity of {slice_us} us")
            }
            slice_us => format!("{name} with slices of {slice_us} us"),
        }
    }
}

/// A kind of threads of the host's own, one on each pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoiseTail {
    /// How long the thread sleeps, mean, in us.
    #[schemars(range(min = 100, max = 3_600_000_000u64))]
    pub every_us: u64,
    /// How long it runs then, mean, in us.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub for_us: u64,
}

/// CPU scheduler of a simulated host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerKind {
    /// Earliest eligible virtual deadline first: Linux since 6.6.
    #[default]
    Eevdf,
    /// The completely fair scheduler: Linux 2.6.23 to 6.5.
    Cfs,
    /// Xen's credit scheduler, its default before 4.12.
    Credit,
    /// Xen's credit2 scheduler, its default since 4.12.
    Credit2,
    /// Xen's real-time scheduler.
    Rtds,
}

impl SchedulerKind {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            SchedulerKind::Eevdf => "EEVDF",
            SchedulerKind::Cfs => "CFS",
            SchedulerKind::Credit => "credit",
            SchedulerKind::Credit2 => "credit2",
            SchedulerKind::Rtds => "RTDS",
        }
    }

    /// Whether it is one of Xen's schedulers; the others are Linux's.
    pub fn is_xen(self) -> bool {
        matches!(self, SchedulerKind::Credit | SchedulerKind::Credit2 | SchedulerKind::Rtds)
    }
}

/// The resources that one simulated run may take. A run that needs more time or events ends early, with the results
/// so far and a note that names the key. Guests that need more memory from the start are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Simulated time, warm-up included, in ms; 0 for no limit.
    #[schemars(range(min = 0, max = 86_400_000))]
    pub simulated_ms: u64,
    /// Events. One that takes as long as several counts as that many.
    #[schemars(range(min = 1_000, max = 1u64 << 50))]
    pub events: u64,
    /// Memory that one run may take in this process, for its guests and for what it records, in MiB.
    #[schemars(range(min = 64, max = 1 << 20))]
    pub memory_mib: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { simulated_ms: 600_000, events: 4_000_000_000, memory_mib: 4_096 }
    }
}
