//! What is done against preempted RCU readers, and with which settings.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is done against preempted RCU readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// The host lets descheduled vCPUs for which a grace period waits run for a moment. They pay the time back. Its
    /// settings are `host.boost`.
    Boost,
    /// A control: as many boosts, as long and paid back as those, at random times that follow from the seed.
    BoostUnaimed,
    /// Readers mark their read-side sections in memory that they share with the host. A vCPU that would be descheduled
    /// within one, or while it runs RCU's kthread, gets one more slice and pays it back (the idea of eCS, 2018). Each mark
    /// costs CPU time. Its settings are `host.slice_grant`.
    SliceGrant,
    /// The host's scheduler cuts slices short. Its setting is `host.short_slices`.
    ShortSlices,
    /// vCPUs that the condition pins to one of its `pcpus` each may run on all of these.
    Unpin,
    /// While some vCPUs of the VM run and others wait for a pCPU, all that have work run together for a slice, and pay it
    /// back. A vCPU without work takes no pCPU. Its settings are `host.co_schedule`.
    CoSchedule,
    /// The guest's scheduler keeps tasks off vCPUs with steal as long as others have none, as far as the tasks' own
    /// affinity lets it. Its settings are `host.steady_cpus`.
    SteadyCpus,
    // Of the guest.
    /// Objects that wait for a grace period stay in their slab cache, and are allocated again right after it. Its
    /// settings are `guest.slab`.
    DeferredAwareSlab,
    /// Tasks that defer frees faster than grace periods end wait, the longer the more of what is outstanding is theirs. Its
    /// settings are `guest.pressure`.
    BackPressure,
    /// `rcupdate.rcu_expedited=1`: `synchronize_rcu()` waits for expedited grace periods. Callbacks do not.
    Expedited,
    /// vCPUs that a grace period waits for are interrupted at once and report at their next preemption point, instead of
    /// at a tick. Its settings are `guest.ask_first`.
    AskFirst,
    /// `rcu_nocbs=all`: a kernel thread for each vCPU invokes its callbacks, on any vCPU.
    Offload,
    /// `rcutree.kthread_prio=1`: RCU's kthread runs before all other tasks of its vCPU.
    KthreadPrio,
    /// RCU's kthread wakes on a vCPU that is on a pCPU, if one is.
    KthreadPlaced,
    // To compare with.
    /// What nobody can do, to compare the others with: a vCPU that the host takes off its pCPU counts as quiescent at
    /// once, though it may be within a reader; and a vCPU on which the grace-period kthread could run, or that could
    /// free memory whose grace period is over, runs at once. They pay the time back.
    Oracle,
    /// An ideal without more CPU time for the guest: no neighbour runs, and the guest is slower by the share of CPU time
    /// that it gets of what it wants beside its neighbours. So it gets as much done in a second, but only the host's own
    /// threads deschedule its vCPUs. Each run is simulated beside the neighbours first, to measure the share.
    EvenShare,
}

impl Remedy {
    /// All of them.
    pub const ALL: [Remedy; 16] = [
        Remedy::Boost,
        Remedy::BoostUnaimed,
        Remedy::SliceGrant,
        Remedy::ShortSlices,
        Remedy::Unpin,
        Remedy::CoSchedule,
        Remedy::SteadyCpus,
        Remedy::DeferredAwareSlab,
        Remedy::BackPressure,
        Remedy::Expedited,
        Remedy::AskFirst,
        Remedy::Offload,
        Remedy::KthreadPrio,
        Remedy::KthreadPlaced,
        Remedy::Oracle,
        Remedy::EvenShare,
    ];

    /// The ideals that remedies are scored against.
    pub const IDEALS: [Remedy; 2] = [Remedy::Oracle, Remedy::EvenShare];

    /// Whether it lets descheduled vCPUs run. Real guests can have these.
    pub fn is_boost(self) -> bool {
        matches!(self, Remedy::Boost | Remedy::BoostUnaimed)
    }

    /// Whether it is there to compare remedies with, and nobody would choose it: a control, or an ideal.
    pub fn is_for_comparison(self) -> bool {
        self == Remedy::BoostUnaimed || Remedy::IDEALS.contains(&self)
    }

    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Remedy::Boost => "boosts of vCPUs that grace periods wait for",
            Remedy::BoostUnaimed => "boosts of vCPUs at random times",
            Remedy::DeferredAwareSlab => "a slab allocator that knows of deferred frees",
            Remedy::SliceGrant => "one more slice for marked readers",
            Remedy::ShortSlices => "short slices",
            Remedy::Unpin => "vCPUs not pinned",
            Remedy::CoSchedule => "vCPUs that run together",
            Remedy::Oracle => "an oracle: no grace period waits for a descheduled vCPU",
            Remedy::EvenShare => "an even share: as much CPU time, and no neighbour deschedules a vCPU",
            Remedy::SteadyCpus => "tasks kept off vCPUs with steal",
            Remedy::BackPressure => "back-pressure on deferred frees",
            Remedy::Expedited => "expedited grace periods for those who wait",
            Remedy::AskFirst => "vCPUs that grace periods wait for are asked at once",
            Remedy::Offload => "callbacks on kernel threads of their own",
            Remedy::KthreadPrio => "RCU's kthread before all other tasks",
            Remedy::KthreadPlaced => "RCU's kthread woken on a vCPU that is on",
        }
    }

    /// Whether the guest's kernel does it, and not the host.
    pub fn is_of_guest(self) -> bool {
        matches!(
            self,
            Remedy::DeferredAwareSlab
                | Remedy::BackPressure
                | Remedy::Expedited
                | Remedy::AskFirst
                | Remedy::Offload
                | Remedy::KthreadPrio
                | Remedy::KthreadPlaced
        )
    }
}

/// The name in a scenario file.
impl fmt::Display for Remedy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

/// Settings of the remedies `boost` and `boost-unaimed`. Only the simulator and real guests read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Boost {
    /// Age of a grace period from which on vCPUs are boosted, in us.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub threshold_us: u64,
    /// The longest boost, in us. On real hosts it is at least 1 ms, the least quota that Linux accepts.
    #[schemars(range(min = 10, max = 100_000))]
    pub cap_us: u64,
    /// The shortest pause between two boosts of a vCPU, in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cool_down_us: u64,
    /// A vCPU that has had this much more CPU time than it has a right to is not boosted, in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub debt_us: u64,
    /// CPU time of a vCPU that its boosts may take, in per cent of one CPU.
    #[schemars(range(min = 1, max = 100))]
    pub share_percent: u64,
    /// Whether a boost of a vCPU that only has to report to RCU begins shortly before a tick of the guest. Fewer boosts then
    /// suffice, but each comes up to a tick later.
    pub before_tick: bool,
    /// Time between two looks at the guest, in us.
    #[schemars(range(min = 10, max = 10_000))]
    pub look_us: u64,
    /// Boosts per second of a vCPU that is descheduled, under `boost-unaimed`.
    #[schemars(range(min = 1, max = 10_000))]
    pub unaimed_per_s: u64,
    /// CPU time that a look takes of a pCPU, with its wake-up and switches, in ns. An estimate, not a measurement: a
    /// timer's expiry, and reads of a few hundred bytes of guest memory and of what the host says of each vCPU's thread. 0
    /// for looks that cost nothing.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub look_ns: u64,
}

impl Default for Boost {
    fn default() -> Boost {
        Boost {
            threshold_us: 5_000,
            cap_us: 500,
            cool_down_us: 1_500,
            debt_us: 10_000,
            share_percent: 20,
            before_tick: false,
            look_us: 100,
            unaimed_per_s: 20,
            look_ns: 5_000,
        }
    }
}

/// Settings of the remedy `slice-grant`. Only the simulator reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SliceGrant {
    /// Length of the one more slice, in us.
    #[schemars(range(min = 10, max = 100_000))]
    pub slice_us: u64,
    /// A vCPU that has had this much more CPU time than it has a right to gets no further slice, in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub debt_us: u64,
    /// Read-side sections that the guest's kernel enters per ms of CPU time in it. An estimate, not a measurement.
    #[schemars(range(min = 0, max = 10_000))]
    pub readers_per_ms: u64,
    /// CPU time of a mark, in ns; a section has two, at its entry and at its exit. An estimate, not a measurement.
    #[schemars(range(min = 0, max = 1_000))]
    pub mark_ns: u64,
}

impl Default for SliceGrant {
    fn default() -> SliceGrant {
        SliceGrant { slice_us: 1_000, debt_us: 10_000, readers_per_ms: 300, mark_ns: 5 }
    }
}

/// The setting of the remedy `short-slices`. Only the simulator reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShortSlices {
    /// Length of a slice, in us (under CFS the least one: `min_granularity`). A host cuts slices at its ticks alone, so its
    /// ticks become as frequent; more than 1,000 a second there are not.
    #[schemars(range(min = 1_000, max = 100_000))]
    pub slice_us: u64,
}

impl Default for ShortSlices {
    fn default() -> ShortSlices {
        ShortSlices { slice_us: 1_000 }
    }
}

/// Settings of the remedy `co-schedule`. Only the simulator reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoSchedule {
    /// How long the vCPUs run together, in us.
    #[schemars(range(min = 100, max = 100_000))]
    pub slice_us: u64,
    /// They do not begin to while one of them has had this much more CPU time than it has a right to, in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub lead_us: u64,
    /// Time between two looks of the host's scheduler, in us. They take no CPU time.
    #[schemars(range(min = 100, max = 100_000))]
    pub look_us: u64,
}

impl Default for CoSchedule {
    fn default() -> CoSchedule {
        CoSchedule { slice_us: 4_000, lead_us: 500, look_us: 1_000 }
    }
}

/// Settings of the remedy `steady-cpus`. Only the simulator reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SteadyCpus {
    /// Steal of a vCPU beyond which tasks leave it, in per cent of the time between two looks.
    #[schemars(range(min = 0, max = 100))]
    pub steal_percent: u64,
    /// Time between two looks, in ms. They take no CPU time.
    #[schemars(range(min = 1, max = 10_000))]
    pub look_ms: u64,
    /// How long a vCPU is left alone, in ms; then it is tried again.
    #[schemars(range(min = 1, max = 60_000))]
    pub retry_ms: u64,
}

impl Default for SteadyCpus {
    fn default() -> SteadyCpus {
        SteadyCpus { steal_percent: 10, look_ms: 20, retry_ms: 500 }
    }
}
