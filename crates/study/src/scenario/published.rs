//! What others found in the same experiment.

use serde::{Deserialize, Serialize};

/// What others found in the same experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Published {
    /// Where: authors, title, venue, pages.
    pub source: String,
    /// Under which condition of this scenario it should show.
    pub condition: String,
    /// Ratios of that condition to the baseline.
    pub ratios: Vec<PublishedRatio>,
    /// Other statements, as text.
    pub statements: Vec<String>,
}

/// One published ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRatio {
    /// Which metric.
    pub metric: String,
    /// Overcommitted over baseline.
    pub ratio: f64,
    /// As it was printed.
    pub printed: String,
}
