//! A case: the same conditions, with another workload or on a host that does something else. Each is compared within itself.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::{self, Setting};
use super::{VcpuQuota, Workload};

/// One case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    /// One line that says what the case is.
    pub label: String,
    /// CPU quotas of single vCPUs, besides those of each condition.
    pub quota: Vec<VcpuQuota>,
    /// What runs in the guest in place of the scenario's workload: a table of the same keys, of any kind. What `set` says
    /// is set afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "IndexMap<String, Setting>")]
    pub workload: Option<Workload>,
    /// Keys that have another value in this case, as in `set` of a condition.
    #[serde(deserialize_with = "setting::flattened")]
    pub set: IndexMap<String, Setting>,
}
