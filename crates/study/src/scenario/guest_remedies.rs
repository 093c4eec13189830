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
