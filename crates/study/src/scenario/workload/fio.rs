//! `[workload] kind = "fio"`: real fio on a real guest's disk, beside tasks that compute on every vCPU; and who decides
//! where fio's jobs run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::io::Access;

/// `kind = "fio"`: fio on a real guest's disk, beside tasks that compute for ever on every vCPU. Only in real guests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fio {
    /// Where on the disk a job reads.
    pub access: Access,
    /// Size of a read, in KiB; a power of two.
    #[schemars(range(min = 4, max = 1_024))]
    pub block_kib: u64,
    /// Jobs, each with one read outstanding.
    #[schemars(range(min = 1, max = 64))]
    pub jobs: u32,
    /// Time that the disk takes for a read, in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub latency_us: u64,
    /// Who decides on which vCPU a job runs.
    pub placement: Placement,
    /// Records the daemon's signals and decisions, and replays them afterwards.
    pub record: bool,
}

impl Default for Fio {
    fn default() -> Self {
        Fio {
            access: Access::Random,
            block_kib: 4,
            jobs: 1,
            latency_us: 500,
            placement: Placement::default(),
            record: true,
        }
    }
}

/// Who decides on which vCPU a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The guest's scheduler.
    #[default]
    Free,
    /// Nobody: each job stays on one vCPU, in turn.
    Pinned,
    /// Nobody: all jobs stay on the first vCPU.
    Gathered,
    /// The daemon: `reprieve migrate --apply`, as users run it.
    Migrate,
    /// The daemon with the policy `pull`, without its guard.
    Pull,
    /// The daemon with the policy `predict`, without its guard.
    Predict,
    /// The daemon with the policy `react`, without its guard.
    React,
    /// The daemon without its guard and with the policy `oracle`, which knows when the host's bursts come.
    Oracle,
}

impl Placement {
    /// The daemon's policy, if it runs; empty for its own.
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Placement::Free | Placement::Pinned | Placement::Gathered => None,
            Placement::Migrate => Some(""),
            Placement::Pull => Some("pull"),
            Placement::Predict => Some("predict"),
            Placement::React => Some("react"),
            Placement::Oracle => Some("oracle"),
        }
    }
}
