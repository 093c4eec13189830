//! A sweep: the scenario is run with several values of one key.

use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// One key, several values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// What is varied, in a few words.
    #[serde(default)]
    pub label: String,
    /// Dotted key of the scenario, one of a condition included: `conditions.overcommitted.overcommit`. `conditions.*.` is the
    /// condition of each run.
    pub key: String,
    /// Unit of the values, if they have one.
    #[serde(default)]
    pub unit: String,
    /// The numbers that the key is given, in turn.
    pub values: Vec<Setting>,
    /// Names of the conditions under which the scenario is run with each value; empty for those that are run.
    #[serde(default)]
    pub conditions: Vec<String>,
}
