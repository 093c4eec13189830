//! The scoreboard of remedies: how much of the harm each takes away, and what it costs, over several workloads.
//!
//! The harm is the distance from no remedy to the oracle, which no remedy can be: an effect, so a logarithm of a ratio.
//! A remedy recovers this share of it, of medians over the runs:
//!
//! ```text
//! share = ln(nothing / remedy) / ln(nothing / oracle)
//! ```
//!
//! 0 is no better than nothing, 1 as good as the oracle, below 0 worse than nothing, and above 1 better than the oracle:
//! it only takes the host out of the way, and a remedy in the guest can do more.
//!
//! The answer must not flatter. So of each remedy counts its *smallest* share over the workloads, and its *largest* cost.
//! Their intervals resample the runs of all workloads and take the extreme of each draw. A workload in which the distance
//! itself is not clear counts as recovered by nobody and stays in the table. A remedy that was not measured in each of
//! the others has no smallest share.

use crate::compare::comparison::{NO_EFFECT, SIGNIFICANT_BELOW};
use crate::observe::metric;
use crate::observe::observation::Observation;
use crate::scenario::{Condition, Remedy, Scenario};
use crate::statistics::{self, Estimate};

/// The condition that has all remedies together goes by this name.
pub const ALL: &str = "all";
/// The harm.
pub const SCORED: [&str; 2] = [metric::GP_P99, metric::FOOTPRINT_PEAK];
/// What a remedy costs, and whether a rise is the cost, or else a fall.
pub const COSTS: [(&str, bool); 3] =
    [(metric::THROUGHPUT, false), (metric::KERNEL_CPU, true), (metric::NEIGHBOUR_CPU, false)];

/// The scoreboard.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// Name of the condition without a remedy, the baseline.
    pub nothing: String,
    /// Name of the condition with the oracle.
    pub oracle: String,
    /// Names of the workloads: the scenario's cases, or its own kind of workload if it has none.
    pub workloads: Vec<String>,
    /// One for each of [`SCORED`].
    pub boards: Vec<Board>,
    /// The costs of each remedy.
    pub costs: Vec<Cost>,
}

/// The scores of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// Its identifier.
    pub metric: &'static str,
    /// One for each workload.
    pub distances: Vec<Distance>,
    /// One for each remedy, in the scenario's order.
    pub remedies: Vec<Recovered>,
}

/// From no remedy to the oracle, in one workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// No remedy over the oracle, medians; `None` if one of them was not measured.
    pub ratio: Option<Estimate>,
    /// Whether there is one: its interval lies above [`NO_EFFECT`], and there are enough runs for a test to tell.
    pub is_clear: bool,
}

/// What a remedy recovers.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// Name of its condition.
    pub condition: String,
    /// The share in each workload; `None` where the distance is not clear, or the remedy was not measured.
    pub shares: Vec<Option<Estimate>>,
    /// The smallest of them; `None` if no distance is clear, or the remedy was not measured in a workload where it is.
    pub smallest: Option<Worst>,
}

/// What a remedy costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Name of its condition.
    pub condition: String,
    /// For each of [`COSTS`] the largest over the workloads, as a share of the median without a remedy; below zero it is
    /// a gain. `None` if it was measured in none.
    pub largest: [Option<Worst>; COSTS.len()],
}

/// The worst value over the workloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// The workload that has it.
    pub workload: String,
    /// The value with its 95 % bootstrap interval.
    pub value: Estimate,
}

impl Recovery {
    /// The scoreboard of a scenario of which a condition has the oracle alone; `None` for any other.
    pub fn of(scenario: &Scenario, observations: &[Observation]) -> Option<Recovery> {
        let is_oracle = |(_, condition): &(&String, &Condition)| condition.remedies == [Remedy::Oracle];
        let oracle = scenario.chosen().find(is_oracle)?.0;
        let runs = Runs { scenario, observations, nothing: scenario.baseline(), oracle };
        let workloads = runs.workloads();
        Some(Recovery {
            nothing: runs.nothing.into(),
            oracle: oracle.clone(),
            boards: SCORED.iter().map(|metric| runs.board(metric, &workloads)).collect(),
            costs: runs.remedies().map(|condition| runs.cost(condition, &workloads)).collect(),
            workloads: workloads.into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// The workloads in which a metric has no clear distance.
    pub fn unclear<'a>(&'a self, board: &'a Board) -> impl Iterator<Item = &'a str> {
        let named = self.workloads.iter().zip(&board.distances);
        named.filter(|(_, distance)| !distance.is_clear).map(|(name, _)| name.as_str())
    }
}

/// A workload: its name, and the case if the scenario has cases.
type Workload<'a> = (String, Option<&'a str>);

/// The runs that a scoreboard is made from.
struct Runs<'a> {
    scenario: &'a Scenario,
    observations: &'a [Observation],
    nothing: &'a str,
    oracle: &'a str,
}

impl<'a> Runs<'a> {
    fn workloads(&self) -> Vec<Workload<'a>> {
        let cases: Vec<Workload> =
            self.scenario.cases.keys().map(|case| (case.clone(), Some(case.as_str()))).collect();
        match cases.is_empty() {
            true => vec![(self.scenario.workload.kind().into(), None)],
            false => cases,
        }
    }

    /// The conditions that are scored: all that are disturbed, but for what they are measured against.
    fn remedies(&self) -> impl Iterator<Item = &'a str> {
        let (nothing, oracle) = (self.nothing, self.oracle);
        let scored = move |(name, condition): &(&String, &Condition)| {
            *name != nothing && *name != oracle && !condition.is_undisturbed()
        };
        self.scenario.chosen().filter(scored).map(|(name, _)| name.as_str())
    }

    fn values(&self, metric: &str, case: Option<&str>, condition: &str) -> Vec<f64> {
        let of = |run: &&Observation| run.is_of_case(case, condition);
        self.observations.iter().filter(of).filter_map(|run| run.value(metric)).collect()
    }

    /// An estimate of a value of the medians of groups. `purpose` determines the resampling.
    fn estimate(
        &self,
        groups: &[Vec<f64>],
        purpose: &str,
        value: impl Fn(&[f64]) -> Option<f64>,
    ) -> Option<Estimate> {
        let groups: Vec<&[f64]> = groups.iter().map(Vec::as_slice).collect();
        statistics::of_medians(&groups, &mut statistics::stream(self.scenario.run.seed, purpose), value)
    }

    fn board(&self, metric: &'static str, workloads: &[Workload]) -> Board {
        let ends: Vec<[Vec<f64>; 2]> = workloads
            .iter()
            .map(|(_, case)| [self.nothing, self.oracle].map(|name| self.values(metric, *case, name)))
            .collect();
        let distances: Vec<Distance> = ends.iter().map(|ends| self.distance(metric, ends)).collect();
        let remedies = self.remedies().map(|condition| {
            let part = |((name, case), (ends, distance)): (&Workload, (&[Vec<f64>; 2], &Distance))| {
                let [nothing, oracle] = ends.clone();
                let treated = self.values(metric, *case, condition);
                distance.is_clear.then(|| (name.clone(), vec![nothing, treated, oracle]))
            };
            let parts: Vec<Option<Part>> =
                workloads.iter().zip(ends.iter().zip(&distances)).map(part).collect();
            let purpose = format!("recovery {metric} {condition}");
            let share_of = |part: &Option<Part>| self.estimate(&part.as_ref()?.1, &purpose, share);
            Recovered {
                condition: condition.into(),
                shares: parts.iter().map(share_of).collect(),
                smallest: self.smallest(parts.into_iter().flatten().collect(), &purpose, share),
            }
        });
        Board { metric, remedies: remedies.collect(), distances }
    }

    fn distance(&self, metric: &str, [nothing, oracle]: &[Vec<f64>; 2]) -> Distance {
        let purpose = format!("distance {metric}");
        let ratio = self.estimate(&[nothing.clone(), oracle.clone()], &purpose, |medians| {
            statistics::log_ratio(medians[0], medians[1]).map(f64::exp)
        });
        let can_tell = statistics::least_p(nothing.len(), oracle.len()) < SIGNIFICANT_BELOW;
        Distance { ratio, is_clear: can_tell && ratio.is_some_and(|ratio| ratio.low > NO_EFFECT) }
    }

    fn cost(&self, condition: &str, workloads: &[Workload]) -> Cost {
        let largest = COSTS.map(|(metric, is_rise)| {
            let part = |(name, case): &Workload| {
                let groups: Vec<Vec<f64>> =
                    [self.nothing, condition].map(|name| self.values(metric, *case, name)).into();
                (name.clone(), groups)
            };
            let is_measured = |(_, groups): &Part| groups.iter().all(|group| !group.is_empty());
            let parts: Vec<Part> = workloads.iter().map(part).filter(is_measured).collect();
            let gain = |medians: &[f64]| {
                let rise = (medians[0] > 0.0).then(|| medians[1] / medians[0] - 1.0)?;
                Some(if is_rise { -rise } else { rise })
            };
            let Worst { workload, value } =
                self.smallest(parts, &format!("cost {metric} {condition}"), gain)?;
            Some(Worst {
                workload,
                value: Estimate { value: -value.value, low: -value.high, high: -value.low },
            })
        });
        Cost { condition: condition.into(), largest }
    }

    /// The smallest value over the workloads; `None` if one of them has none.
    fn smallest(
        &self,
        parts: Vec<Part>,
        purpose: &str,
        value: impl Fn(&[f64]) -> Option<f64>,
    ) -> Option<Worst> {
        let medians = |groups: &Vec<Vec<f64>>| groups.iter().map(|group| statistics::median(group)).collect();
        let seen = |(name, groups): &Part| {
            let medians: Option<Vec<f64>> = medians(groups);
            Some((name.clone(), value(&medians?)?))
        };
        let seen: Vec<(String, f64)> = parts.iter().map(seen).collect::<Option<_>>()?;
        let (workload, _) = seen.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let size = parts[0].1.len();
        let groups: Vec<Vec<f64>> = parts.into_iter().flat_map(|(_, groups)| groups).collect();
        let value = self.estimate(&groups, &format!("smallest {purpose}"), |medians| {
            let values: Option<Vec<f64>> = medians.chunks(size).map(&value).collect();
            values?.into_iter().min_by(f64::total_cmp)
        })?;
        Some(Worst { workload, value })
    }
}

/// A workload's name, and its groups of values.
type Part = (String, Vec<Vec<f64>>);

/// The share of the distance that is recovered; the medians are those without a remedy, with it, and with the oracle.
/// `None` without a distance.
fn share(medians: &[f64]) -> Option<f64> {
    let &[nothing, treated, oracle] = medians else { return None };
    let distance = statistics::log_ratio(nothing, oracle).filter(|distance| *distance > 0.0)?;
    Some(statistics::log_ratio(nothing, treated)? / distance)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
