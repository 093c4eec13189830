//! A case: the same conditions, with another workload or on a host that does something else. Each is compared within itself.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VcpuQuota;
use super::setting::{self, Setting};

/// One case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    /// One line that says what the case is.
    pub label: String,
    /// CPU quotas of single vCPUs, besides those of each condition.
    pub quota: Vec<VcpuQuota>,
    /// Keys that have another value in this case, as in `set` of a condition.
    #[serde(deserialize_with = "setting::flattened")]
    pub set: IndexMap<String, Setting>,
}
