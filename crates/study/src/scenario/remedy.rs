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
    /// A control: as many boosts, as long and paid back as those, at random times that follow from the seed.
    BoostUnaimed,
}

impl Remedy {
    /// All of them.
    pub const ALL: [Remedy; 2] = [Remedy::Boost, Remedy::BoostUnaimed];

    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Remedy::Boost => "boosts of vCPUs that grace periods wait for",
            Remedy::BoostUnaimed => "boosts of vCPUs at random times",
        }
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
    /// Time between two looks at the guest, in us.
    #[schemars(range(min = 10, max = 10_000))]
    pub look_us: u64,
    /// Boosts per second of each vCPU under `boost-unaimed`.
    #[schemars(range(min = 1, max = 10_000))]
    pub unaimed_per_s: u64,
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
            unaimed_per_s: 20,
        }
    }
}
