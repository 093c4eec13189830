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
    /// Ratios of that condition, or of the one that each names, to the baseline.
    pub ratios: Vec<PublishedRatio>,
    /// Other statements, as text.
    pub statements: Vec<String>,
}

impl Published {
    /// The ratios of that condition.
    pub fn of<'a>(&'a self, condition: &'a str) -> impl Iterator<Item = &'a PublishedRatio> {
        self.ratios.iter().filter(move |ratio| self.condition_of(ratio) == condition)
    }

    /// The condition under which that ratio should show.
    pub fn condition_of<'a>(&'a self, ratio: &'a PublishedRatio) -> &'a str {
        if ratio.condition.is_empty() { &self.condition } else { &ratio.condition }
    }
}

/// One published ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRatio {
    /// Under which condition of this scenario it should show; empty for the one of all ratios.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// Which metric.
    pub metric: String,
    /// Overcommitted over baseline.
    pub ratio: f64,
    /// As it was printed.
    pub printed: String,
}
