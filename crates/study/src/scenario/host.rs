//! The simulated host, and what a simulation may take. Only the ground `sim` uses them.

use serde::{Deserialize, Serialize};

use super::Xen;

/// The host that is simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostModel {
    /// Physical CPUs; 0 for as many as the guest has vCPUs.
    pub pcpus: usize,
    /// Its CPU scheduler.
    pub scheduler: SchedulerKind,
    /// Frequency of its timer tick, per second.
    pub hz: u64,
    /// A context switch takes so long.
    pub switch_ns: u64,
    /// What a vCPU loses to cold caches after another one ran in its place.
    pub cold_cache_ns: u64,
    /// Wake-ups of the host's own threads, per second and pCPU. The defaults of this and the next key are calibrated on
    /// the baselines of `records/*.json`: vCPUs alone on their pCPUs wait 2 % of the time, and are away for 0.5 ms or
    /// more about once a second.
    pub noise_per_s: u64,
    /// How long each of them runs, mean.
    pub noise_ns: u64,
    /// Further own threads of the host, rarer and longer: with the first ones they make a mixture of exponential
    /// distributions, which has the long tail that real hosts have and a single one has not.
    pub noise_tail: Vec<NoiseTail>,
    /// Whether each of these threads is bound to its pCPU. Else they run where there is room, as most of a real host's do: one
    /// vCPU on two pCPUs is off 5 times a second there, beside 1,300 times where both are busy.
    pub noise_bound: bool,
    /// Length of a slice; 0 for the scheduler's own. Linux's schedulers only.
    pub slice_us: u64,
    /// What Xen's schedulers depend on.
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
            xen: Xen::default(),
        }
    }
}

impl HostModel {
    /// Physical CPUs of a host whose guest under test has so many vCPUs.
    pub fn pcpus_for(&self, vcpus: usize) -> usize {
        if self.pcpus == 0 { vcpus } else { self.pcpus }
    }

    /// For captions: the scheduler, and what differs from its defaults.
    pub fn scheduler_text(&self) -> String {
        let name = self.scheduler.name();
        match self.slice_us {
            _ if self.scheduler.is_xen() => self.xen.text(self.scheduler),
            0 => name.into(),
            slice_us => format!("{name} with slices of {slice_us} us"),
        }
    }
}

/// Own threads of the host, one on each pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseTail {
    /// Each sleeps so long, mean.
    pub every_us: u64,
    /// And then runs so long, mean.
    pub for_us: u64,
}

/// CPU scheduler of a simulated host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// As its users write it.
    pub fn name(self) -> &'static str {
        match self {
            SchedulerKind::Eevdf => "EEVDF",
            SchedulerKind::Cfs => "CFS",
            SchedulerKind::Credit => "credit",
            SchedulerKind::Credit2 => "credit2",
            SchedulerKind::Rtds => "RTDS",
        }
    }

    /// Whether it is Xen's, not Linux's.
    pub fn is_xen(self) -> bool {
        matches!(self, SchedulerKind::Credit | SchedulerKind::Credit2 | SchedulerKind::Rtds)
    }
}

/// What one simulated run may take. A run that would take more time or events ends early, with what it has and a note
/// that names the key; guests that would take more memory from the start are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Simulated time, warm-up included; 0 for no limit.
    pub simulated_ms: u64,
    /// Events; one that takes as long as several counts as so many.
    pub events: u64,
    /// Memory of this process for one run, in MiB: of its guests, and of what it records.
    pub memory_mib: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { simulated_ms: 600_000, events: 4_000_000_000, memory_mib: 4_096 }
    }
}
