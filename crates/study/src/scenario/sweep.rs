//! A sweep: the scenario is run with several values of one key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// One key, several values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// A few words that say what is varied.
    #[serde(default)]
    pub label: String,
    /// The key that is varied: one that `set` may name, or one of a condition, as
    /// `conditions.overcommitted.overcommit`. `conditions.*.overcommit` is the key of whichever condition is
    /// run.
    pub key: String,
    /// Unit of the values, if they have one.
    #[serde(default)]
    pub unit: String,
    /// The numbers that the key is given in turn, 1 to 64.
    pub values: Vec<Setting>,
    /// Names of the conditions that are run with each value; empty for those of the scenario.
    #[serde(default)]
    pub conditions: Vec<String>,
}
