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
    /// Ratios of one condition to another, in one case or on average over all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PublishedPair>,
    /// Orders of conditions, in one case or in each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<PublishedOrder>,
    /// Other statements, as text.
    pub statements: Vec<String>,
    /// What of this scenario was chosen with these figures in view, as text: agreement there proves less.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
}

/// One published ratio of a scenario with cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPair {
    /// In which case; empty for the mean of the cases' ratios.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub case: String,
    /// Which metric.
    pub metric: String,
    /// The condition above the line.
    pub condition: String,
    /// The condition below it.
    pub against: String,
    /// The ratio.
    pub ratio: f64,
    /// As it was printed.
    pub printed: String,
}

/// One published order of conditions of a scenario with cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedOrder {
    /// In which case; empty for each of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub case: String,
    /// Which metric.
    pub metric: String,
    /// The conditions, that with the least of it first.
    pub rising: Vec<String>,
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
