//! `[space]`: several keys at once, each with its values, and the points of that space that are run. `reprieve sweep` runs them, on
//! one machine or many.
//!
//! | module | what it does |
//! |---|---|
//! | `check` | refuses spaces that cannot be run |
//! | [`points`] | the points, one after the other |
//! | [`expand`] | the run at a point |

mod check;
pub mod expand;
pub mod points;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// Several keys, each with its values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Space {
    /// Which points are run.
    pub sampling: Sampling,
    /// Number of points, for `random` and `sobol` alone: a grid and a list have as many as their values say.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub points: u64,
    /// Names of the conditions that are run at each point; empty for those of the scenario.
    pub conditions: Vec<String>,
    /// What is varied, by name.
    pub axes: IndexMap<String, Axis>,
}

/// Which points of a space are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// All combinations of the values.
    #[default]
    Grid,
    /// The first values of all axes together, then the second ones, and so on.
    List,
    /// Points drawn at random from the scenario's seed, each axis for itself.
    Random,
    /// Points of a Sobol sequence, which fill the space more evenly than random ones. At most 65536.
    Sobol,
}

/// One key and its values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Axis {
    /// A few words that say what is varied.
    pub label: String,
    /// The key: one that `set` of a condition may name, or one of a condition, as `conditions.overcommitted.overcommit`.
    /// `conditions.*.overcommit` is the key of whichever condition is run.
    pub key: String,
    /// Unit of the values, if they have one.
    pub unit: String,
    /// Its values: numbers, texts, true or false.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Setting>,
    /// In place of `values`: the range from which values are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Range")]
    pub range: Option<Range>,
}

/// A range of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The least value.
    pub from: f64,
    /// The largest value.
    pub to: f64,
    /// How values are spread over the range.
    #[serde(default)]
    pub scale: Scale,
    /// Whether all values are whole numbers.
    #[serde(default)]
    pub whole: bool,
    /// Number of values in a grid or a list, the least and the largest among them; points that are drawn need none.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub steps: u64,
}

/// How values are spread over a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal steps.
    #[default]
    Linear,
    /// Equal ratios; `from` must be above 0.
    Log,
}

impl Space {
    /// Number of points. Nothing is expanded to compute it.
    pub fn size(&self) -> u64 {
        let mut counts = self.axes.values().map(Axis::count);
        match self.sampling {
            Sampling::Grid => counts.fold(1, u64::saturating_mul),
            Sampling::List => counts.next().unwrap_or(0),
            Sampling::Random | Sampling::Sobol => self.points,
        }
    }
}

impl Axis {
    /// Number of its values in a grid or a list.
    fn count(&self) -> u64 {
        self.range.as_ref().map_or(self.values.len() as u64, |range| range.steps)
    }

    /// The value of that number in a grid or a list.
    fn at(&self, number: u64) -> Setting {
        match &self.range {
            None => self.values[number as usize].clone(),
            Some(range) => range.at(number as f64 / (range.steps.max(2) - 1) as f64),
        }
    }

    /// The value at that share of the axis, from 0 to below 1.
    fn drawn(&self, share: f64) -> Setting {
        match &self.range {
            None => {
                self.values[((share * self.values.len() as f64) as usize).min(self.values.len() - 1)].clone()
            }
            Some(range) if range.whole => range.whole_at(share),
            Some(range) => range.at(share),
        }
    }
}

impl Range {
    /// The number at that share of the range, from 0 to 1.
    fn at(&self, share: f64) -> Setting {
        let between = |from: f64, to: f64| from + (to - from) * share;
        // The ends are as they were given.
        let value = match self.scale {
            _ if share <= 0.0 => self.from,
            _ if share >= 1.0 => self.to,
            Scale::Linear => between(self.from, self.to),
            Scale::Log => between(self.from.ln(), self.to.ln()).exp(),
        };
        match self.whole {
            true => Setting::Integer(value.round() as i64),
            false if value == self.from || value == self.to => Setting::Number(value),
            false => Setting::Number(readable(value).clamp(self.from, self.to)),
        }
    }

    /// The whole number at that share, from 0 to below 1: the number n has the part [n, n + 1) of [from, to + 1) on this scale.
    fn whole_at(&self, share: f64) -> Setting {
        let (from, end) = (self.from, self.to + 1.0);
        let value = match self.scale {
            Scale::Linear => from + (end - from) * share,
            Scale::Log => (from.ln() + (end.ln() - from.ln()) * share).exp(),
        };
        Setting::Integer(value.floor().clamp(self.from, self.to) as i64)
    }
}

/// Six digits are enough, are read more easily, and are the same on every machine.
fn readable(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: f64, to: f64, scale: Scale, whole: bool, steps: u64) -> Axis {
        Axis { range: Some(Range { from, to, scale, whole, steps }), ..Axis::default() }
    }

    #[test]
    fn a_range_has_its_ends_and_is_spread_evenly_or_by_ratios() {
        let all = |axis: Axis| (0..axis.count()).map(|number| axis.at(number)).collect::<Vec<_>>();
        let numbers = |values: &[f64]| values.iter().map(|value| Setting::Number(*value)).collect::<Vec<_>>();
        assert_eq!(all(range(1.0, 4.0, Scale::Linear, false, 4)), numbers(&[1.0, 2.0, 3.0, 4.0]));
        assert_eq!(all(range(1.0, 100.0, Scale::Log, false, 3)), numbers(&[1.0, 10.0, 100.0]));
        assert_eq!(all(range(0.0, 1.0, Scale::Linear, false, 4)), numbers(&[0.0, 0.333333, 0.666667, 1.0]));
        let whole = all(range(1.0, 64.0, Scale::Log, true, 4));
        assert_eq!(whole, [1, 4, 16, 64].map(Setting::Integer));
    }

    #[test]
    fn whole_numbers_are_drawn_alike_often() {
        let axis = range(2.0, 4.0, Scale::Linear, true, 0);
        let drawn: Vec<Setting> = (0..6).map(|sixth| axis.drawn(f64::from(sixth) / 6.0 + 0.01)).collect();
        assert_eq!(drawn, [2, 2, 3, 3, 4, 4].map(Setting::Integer));
        let named =
            Axis { values: ["a", "b"].map(|text| Setting::Text(text.into())).into(), ..Axis::default() };
        assert_eq!((named.drawn(0.49), named.drawn(0.51)), (named.at(0), named.at(1)));
    }
}
