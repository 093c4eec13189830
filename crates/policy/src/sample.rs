//! One look at a VM from inside: what happened since the look before. The collector (`reprieve-linux`, `observe`) makes one a
//! second; `explain` judges them, `watch` shows them, the hindsight ring keeps them, and the exporter adds them up.
//!
//! Files hold samples for years, so fields are only ever added, each with a default. Times of one boot are by
//! CLOCK_MONOTONIC.

use serde::{Deserialize, Serialize};

use crate::SECOND_NS;
use crate::fingerprint::Off;

/// Beats of a vCPU in a second, rounded, at this distance from each other in ns.
pub fn beats_per_second(beat_ns: u64) -> u64 {
    (SECOND_NS + beat_ns / 2) / beat_ns.max(1)
}

/// What a sample was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    /// What anybody may read.
    #[default]
    T0,
    /// What root may read: slabs, the kernel's log.
    T1,
    /// The kernel's own functions, by eBPF.
    T2,
}

impl Tier {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Tier::T0 => "T0",
            Tier::T1 => "T1",
            Tier::T2 => "T2",
        }
    }
}

/// A VM from `at_ns - span_ns` to `at_ns`. `None` stands for what this kernel does not tell, or not to this user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Its end, ns.
    pub at_ns: u64,
    /// Its end by the clock of the day, ns since 1970.
    pub day_ns: u64,
    /// Its length, ns.
    pub span_ns: u64,
    /// The highest tier in it.
    pub tier: Tier,
    /// Time between two beats, ns. A time off that falls between two beats was not seen.
    pub beat_ns: u64,
    /// Whether all beats had real-time priority: then the guest's own tasks hardly delay them.
    pub real_time: bool,
    /// The vCPUs that the collector may use, ascending.
    pub vcpus: Vec<VcpuSample>,
    /// Throttling of the collector's own cgroup, ns, over all CPUs.
    pub throttled_ns: Option<u64>,
    /// How far the clock of the day moved against CLOCK_MONOTONIC, without suspension, ns.
    pub stepped_ns: i64,
    /// How long the machine was suspended, ns.
    pub suspended_ns: u64,
    /// Time during which some task waited for a CPU (PSI), ns.
    pub cpu_wait_ns: Option<u64>,
    /// Time during which some task waited for memory (PSI), ns.
    pub memory_wait_ns: Option<u64>,
    /// Time during which some task waited for I/O (PSI), ns.
    pub io_wait_ns: Option<u64>,
    /// How long RCU's kthread could run and did not, ns.
    pub kthread_wait_ns: Option<u64>,
    /// Waits for grace periods that ended in this time (`membarrier`), ns.
    pub grace_periods_ns: Vec<u64>,
    /// How long the open one has taken so far, ns; 0 if none is open.
    pub open_grace_period_ns: u64,
    /// Memory at its end.
    pub memory: Option<Memory>,
    /// The largest block of free memory, bytes: what the kernel can allocate in one piece.
    pub largest_free_bytes: Option<u64>,
    /// The slab caches that grew most since they were last read, from tier T1 on; the one that grew most first. At a frugal
    /// pace they are read only in every tenth sample.
    pub slabs: Vec<SlabGrowth>,
    /// RCU stalls that the kernel logged in this time, from tier T1 on.
    pub stalls: Option<u64>,
    /// Lockups that it logged, from tier T1 on.
    pub lockups: Option<u64>,
    /// What the kernel frees after grace periods, from tier T2 on.
    pub deferred: Option<Deferred>,
    /// Names of tasks that ran while others waited for their CPU, and for how long these waited, ns, summed over those that
    /// waited; the longest first. From tier T2 on.
    pub in_the_way: Vec<(String, u64)>,
}

/// One vCPU in a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VcpuSample {
    /// Its number.
    pub vcpu: usize,
    /// Beats.
    pub beats: u64,
    /// Times that it was off and came back from, in order.
    pub offs: Vec<Off>,
    /// Times off for which there was no room.
    pub lost: u64,
    /// For how long the guest's own tasks kept the beats waiting, ns.
    pub kept_ns: u64,
    /// Time idle, ns, to a clock tick.
    pub idle_ns: Option<u64>,
    /// Steal, ns, to a clock tick; `None` also if this host has booked none since boot.
    pub steal_ns: Option<u64>,
    /// How long its tasks could run and did not, ns, summed over tasks.
    pub run_delay_ns: Option<u64>,
}

impl VcpuSample {
    /// Time off, ns.
    pub fn off_ns(&self) -> u64 {
        self.offs.iter().map(Off::length_ns).fold(0, u64::saturating_add)
    }
}

/// Memory of the guest, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Free.
    pub free_bytes: u64,
    /// The kernel's estimate of what can be had without swapping.
    pub available_bytes: u64,
    /// Slabs. Memory that waits for grace periods is a part of it.
    pub slab_bytes: u64,
    /// Slabs that cannot be reclaimed.
    pub unreclaimable_bytes: u64,
}

/// A slab cache that grew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlabGrowth {
    /// Its name.
    pub cache: String,
    /// Objects in use, bytes.
    pub bytes: u64,
    /// By how much these grew, bytes.
    pub grown_bytes: u64,
}

/// What the kernel freed after grace periods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deferred {
    /// The kernel's grace periods that ended in this time, ns, exactly.
    pub grace_periods_ns: Vec<u64>,
    /// How often RCU looked in these for CPUs that hold them up (force quiescent state); `None` if that was not seen.
    pub forced: Option<u64>,
    /// Objects that were queued, by the function that frees them or, if it has none, that queued them; the most first.
    pub queued: Vec<(String, u64)>,
}
