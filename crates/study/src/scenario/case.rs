//! A case: the same conditions, with another workload. Each is compared within itself.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::setting::{self, Setting};

/// One case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    /// What it is, in a line.
    pub label: String,
    /// Keys of the scenario that have another value in this case.
    #[serde(deserialize_with = "setting::flattened")]
    pub set: IndexMap<String, Setting>,
}
