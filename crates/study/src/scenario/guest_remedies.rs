//! Settings of the remedies that a guest's kernel takes: `[guest.slab]` and its like. Only the simulator reads them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the remedy `deferred-aware-slab`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Slab {
    /// Objects whose grace period is over, and that no allocation needed for this time, go back to their slabs, in ms.
    #[schemars(range(min = 1, max = 10_000))]
    pub keep_ms: u64,
    /// The allocator asks for a grace period when a cache must grow while at least this share of its objects waits for
    /// one, in per cent.
    #[schemars(range(min = 1, max = 100))]
    pub short_percent: u64,
    /// Whether it asks for an expedited grace period; else it has the current one hurried on.
    pub expedite: bool,
}

impl Default for Slab {
    fn default() -> Slab {
        Slab { keep_ms: 20, short_percent: 25, expedite: true }
    }
}

/// Settings of the remedy `back-pressure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pressure {
    /// Memory that waits for grace periods up to which nobody waits, in MiB.
    #[schemars(range(min = 0, max = 1 << 20))]
    pub low_mib: u64,
    /// Memory from which on waits are longest, in MiB. At least `low_mib`.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub high_mib: u64,
    /// The longest wait, in us: of a task to whose vCPU all of that memory belongs. Others wait in proportion to theirs.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub longest_us: u64,
    /// Whether tasks wait for a grace period from `high_mib` on, if at least an equal share belongs to their vCPU.
    pub synchronize: bool,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure { low_mib: 128, high_mib: 512, longest_us: 4_000, synchronize: true }
    }
}

/// Settings of the remedy `ask-first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AskFirst {
    /// Whether vCPUs are asked as soon as a grace period begins; else at its first scan, a jiffy later.
    pub at_start: bool,
}

impl Default for AskFirst {
    fn default() -> AskFirst {
        AskFirst { at_start: true }
    }
}
