//! What is done against preempted RCU readers, and with which settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is done against preempted RCU readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// The host lets descheduled vCPUs for which a grace period waits run for a moment. They pay the time back. Its
    /// settings are `host.boost`.
    Boost,
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
}

impl Remedy {
    /// All of them.
    pub const ALL: [Remedy; 6] = [
        Remedy::Boost,
        Remedy::DeferredAwareSlab,
        Remedy::BackPressure,
        Remedy::Expedited,
        Remedy::AskFirst,
        Remedy::Offload,
    ];

    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Remedy::Boost => "boosts of vCPUs that grace periods wait for",
            Remedy::DeferredAwareSlab => "a slab allocator that knows of deferred frees",
            Remedy::BackPressure => "back-pressure on deferred frees",
            Remedy::Expedited => "expedited grace periods for those who wait",
            Remedy::AskFirst => "vCPUs that grace periods wait for are asked at once",
            Remedy::Offload => "callbacks on kernel threads of their own",
        }
    }

    /// Whether the guest's kernel does it, and not the host.
    pub fn is_of_guest(self) -> bool {
        !matches!(self, Remedy::Boost)
    }
}

/// Settings of the remedy `boost`. Only the simulator reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Boost {
    /// Age of a grace period from which on vCPUs are boosted, in us.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub threshold_us: u64,
    /// The longest boost, in us.
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
    /// Time between two looks at the guest, in us.
    #[schemars(range(min = 10, max = 10_000))]
    pub look_us: u64,
}

impl Default for Boost {
    fn default() -> Boost {
        Boost {
            threshold_us: 5_000,
            cap_us: 500,
            cool_down_us: 1_500,
            debt_us: 10_000,
            share_percent: 20,
            look_us: 100,
        }
    }
}
