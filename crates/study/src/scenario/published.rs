//! What others found in the same experiment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What others found in the same experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Published {
    /// Where it was published: authors, title, venue, pages.
    pub source: String,
    /// The condition of this scenario under which the ratios should show.
    pub condition: String,
    /// Ratios of a condition to the baseline.
    pub ratios: Vec<PublishedRatio>,
    /// Ratios of one condition to another, in one case or on average over all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PublishedPair>,
    /// Orders of conditions, in one case or in each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<PublishedOrder>,
    /// Other findings, as text.
    pub statements: Vec<String>,
    /// What was chosen in this scenario with the published figures in view, as text. Agreement there proves
    /// less.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
}

/// One published ratio of a scenario with cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedPair {
    /// The case; empty for the mean of the cases' ratios.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub case: String,
    /// The metric's identifier.
    pub metric: String,
    /// The condition above the fraction bar.
    pub condition: String,
    /// The condition below it.
    pub against: String,
    /// The ratio of the two.
    pub ratio: f64,
    /// The figure as it was printed.
    pub printed: String,
}

/// One published order of conditions of a scenario with cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedOrder {
    /// The case; empty for each of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub case: String,
    /// The metric's identifier.
    pub metric: String,
    /// The conditions, lowest value of the metric first.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedRatio {
    /// The condition under which the ratio should show; empty for `published.condition`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The metric's identifier.
    pub metric: String,
    /// The metric under that condition over the metric under the baseline.
    pub ratio: f64,
    /// The figure as it was printed.
    pub printed: String,
}
