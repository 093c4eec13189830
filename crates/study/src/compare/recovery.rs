//! The scoreboard of remedies: how much of the harm each remedy removes, and what it costs, over several workloads.
//!
//! The harm is the distance from no remedy to the oracle, an ideal that cannot be built. The distance is an effect, so
//! it is the logarithm of a ratio. A remedy recovers this share of the distance, computed from medians over the runs:
//!
//! ```text
//! share = ln(nothing / remedy) / ln(nothing / oracle)
//! ```
//!
//! A share of 0 means no better than nothing, 1 means as good as the oracle, and below 0 means worse than nothing. A
//! remedy in the guest can exceed 1, because the oracle removes only the harm that the host does.
//!
//! The answer must not flatter a remedy. So each remedy is judged by its *smallest* share over the workloads and by its
//! *largest* cost. For their intervals, each draw resamples the runs of all workloads and takes the extreme. If the
//! distance is not clear in a workload, no remedy recovers anything there, and the workload stays in the table. A
//! remedy that was not measured in each workload with a clear distance has no smallest share.

use crate::compare::comparison::{NO_EFFECT, SIGNIFICANT_BELOW};
use crate::observe::metric;
use crate::observe::observation::Observation;
use crate::scenario::{Condition, Remedy, Scenario};
use crate::statistics::{self, Estimate};

/// Name of the condition with all remedies together.
pub const ALL: &str = "all";
/// The metrics of harm, which are scored.
pub const SCORED: [&str; 2] = [metric::GP_P99, metric::FOOTPRINT_PEAK];
/// The metrics of cost. The flag says that a rise is the cost; otherwise a fall is.
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
    /// A board for each of [`SCORED`].
    pub boards: Vec<Board>,
    /// The costs of each remedy.
    pub costs: Vec<Cost>,
}

/// The scores of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// The metric's identifier.
    pub metric: &'static str,
    /// The distance in each workload.
    pub distances: Vec<Distance>,
    /// What each remedy recovers, in the scenario's order.
    pub remedies: Vec<Recovered>,
}

/// The distance from no remedy to the oracle, in one workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// The median without a remedy divided by that of the oracle. `None` if one of them was not measured.
    pub ratio: Option<Estimate>,
    /// Whether there is a clear distance: the interval lies above [`NO_EFFECT`], and there are enough runs for a test.
    pub is_clear: bool,
}

/// What a remedy recovers.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// Name of its condition.
    pub condition: String,
    /// The share in each workload; `None` where the distance is not clear, or the remedy was not measured.
    pub shares: Vec<Option<Estimate>>,
    /// The smallest share. `None` if no distance is clear, or if the remedy was not measured in a workload with a clear
    /// distance.
    pub smallest: Option<Worst>,
}

/// What a remedy costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Name of its condition.
    pub condition: String,
    /// For each of [`COSTS`], the largest cost over the workloads, as a share of the median without a remedy. Below
    /// zero it is a gain. `None` if no workload measured it.
    pub largest: [Option<Worst>; COSTS.len()],
}

/// The worst value over the workloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// The workload with this value.
    pub workload: String,
    /// The value with its 95 % bootstrap interval.
    pub value: Estimate,
}

impl Recovery {
    /// The scoreboard of a scenario that has a condition with only the oracle. `None` for other scenarios.
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

    /// The conditions to score: all disturbed ones except the baseline and the oracle.
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

    /// An estimate of a value that is computed from the medians of groups. `purpose` determines the resampling.
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

    /// The smallest value over the workloads. `None` if a workload has no value.
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

/// The share of the distance that is recovered. The medians are those without a remedy, with the remedy, and with the
/// oracle. `None` if there is no distance.
fn share(medians: &[f64]) -> Option<f64> {
    let &[nothing, treated, oracle] = medians else { return None };
    let distance = statistics::log_ratio(nothing, oracle).filter(|distance| *distance > 0.0)?;
    Some(statistics::log_ratio(nothing, treated)? / distance)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
