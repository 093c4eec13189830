//! A case: the same conditions, with another workload. Each is compared within itself.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Workload;
use super::setting::{self, Setting};

/// One case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    /// One line that says what the case is.
    pub label: String,
    /// What runs in the guest in place of the scenario's workload: a table of the same keys, of any kind. What `set` says
    /// is set afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "IndexMap<String, Setting>")]
    pub workload: Option<Workload>,
    /// Keys that have another value in this case, as in `set` of a condition.
    #[serde(deserialize_with = "setting::flattened")]
    pub set: IndexMap<String, Setting>,
}
