//! The scoreboard of remedies: how much of the harm each remedy removes, and what it costs, over several workloads.
//!
//! The harm is the distance from no remedy to an ideal that cannot be built. The distance is an effect, so it is the
//! logarithm of a ratio. A remedy recovers this share of the distance, computed from medians over the runs:
//!
//! ```text
//! share = ln(nothing / remedy) / ln(nothing / ideal)
//! ```
//!
//! A share of 0 means no better than nothing, 1 means as good as the ideal, and below 0 means worse than nothing. A remedy
//! in the guest can exceed 1, because the ideals remove only the harm that the host does.
//!
//! There are two ideals, with boards of their own. The *oracle* treats a descheduled vCPU as quiescent in the middle of a
//! reader, so it can beat a guest without neighbours. An *even share* keeps each reader as long as the guest's share of CPU
//! time makes it: without more CPU time for the guest, only a host that knew when readers end could do better.
//!
//! The answer must not flatter. So of each remedy counts its *smallest* share over the workloads, and its *largest* cost.
//! Their intervals resample the runs of all workloads and take the extreme of each draw. A workload in which the distance
//! itself is not clear counts as recovered by nobody and stays in the table, with the ratio of the remedy to nothing: a
//! remedy can do harm there. A remedy that was not measured in each of the others has no smallest share. An undisturbed
//! guest and the other ideal are on the boards too, to show how good the ideal is.

use crate::compare::comparison::{NO_EFFECT, SIGNIFICANT_BELOW};
use crate::observe::metric;
use crate::observe::observation::Observation;
use crate::scenario::{Condition, Remedy, Scenario};
use crate::statistics::{self, Estimate};

/// Name of the condition with all remedies together.
pub const ALL: &str = "all";
/// The metrics of harm, which are scored.
pub const SCORED: [&str; 2] = [metric::GP_P99, metric::FOOTPRINT_PEAK];
/// What a remedy costs. The share of kernel CPU alone is at its end in a guest that is busy in the kernel, whatever a remedy
/// does; so it counts over the operations of the same run.
pub const COSTS: [Price; 4] = [
    Price { metric: metric::THROUGHPUT, per: None, is_rise: false },
    Price { metric: metric::KERNEL_CPU, per: Some(metric::THROUGHPUT), is_rise: true },
    Price { metric: metric::NEIGHBOUR_CPU, per: None, is_rise: false },
    Price { metric: metric::UNUSABLE_PEAK, per: None, is_rise: true },
];

/// One kind of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// What is measured.
    pub metric: &'static str,
    /// The metric of the same run that it is divided by.
    pub per: Option<&'static str>,
    /// Whether a rise is the cost, or else a fall.
    pub is_rise: bool,
}

/// The scoreboard.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// Name of the condition without a remedy, the baseline.
    pub nothing: String,
    /// Names of the workloads: the scenario's cases, or its own kind of workload if it has none.
    pub workloads: Vec<String>,
    /// A board for each of [`SCORED`], for each ideal that was measured.
    pub boards: Vec<Board>,
    /// The costs of each remedy.
    pub costs: Vec<Cost>,
}

/// The scores of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// The ideal that remedies are measured against: one of [`Remedy::IDEALS`].
    pub ideal: Remedy,
    /// The metric's identifier.
    pub metric: &'static str,
    /// The distance in each workload.
    pub distances: Vec<Distance>,
    /// What each remedy recovers, in the scenario's order.
    pub remedies: Vec<Recovered>,
    /// What was measured of an undisturbed guest and of the other ideals: this ideal is weak where they are much better.
    pub references: Vec<Recovered>,
}

/// The distance from no remedy to the ideal, in one workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// The median without a remedy divided by that of the ideal. `None` if one of them was not measured.
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
    /// The remedy over nothing, medians, in each workload; `None` where one of them was not measured.
    pub ratios: Vec<Option<Estimate>>,
    /// The smallest of them; `None` if no distance is clear, or the remedy was not measured in a workload where it is.
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
    /// Of how many workloads it is the worst: those with a clear distance, or in which the cost was measured.
    pub of: usize,
    /// The value with its 95 % bootstrap interval.
    pub value: Estimate,
}

impl Recovery {
    /// The scoreboard of a scenario that has a condition with only an ideal. `None` for other scenarios.
    pub fn of(scenario: &Scenario, observations: &[Observation]) -> Option<Recovery> {
        let named = |ideal: Remedy| {
            let mut chosen = scenario.chosen();
            let found = chosen.find(|(_, condition): &(&String, &Condition)| condition.remedies == [ideal]);
            Some((ideal, found?.0.as_str()))
        };
        let ideals: Vec<(Remedy, &str)> = Remedy::IDEALS.into_iter().filter_map(named).collect();
        let runs = Runs { scenario, observations, nothing: scenario.baseline(), ideals: &ideals };
        let workloads = runs.workloads();
        let boards = |ideal| SCORED.map(|metric| runs.board(ideal, metric, &workloads));
        (!ideals.is_empty()).then(|| Recovery {
            nothing: runs.nothing.into(),
            boards: ideals.iter().flat_map(|ideal| boards(*ideal)).collect(),
            costs: runs.remedies().map(|condition| runs.cost(condition, &workloads)).collect(),
            workloads: workloads.iter().map(|(name, _)| name.clone()).collect(),
        })
    }

    /// The workloads in which a metric has no clear distance.
    pub fn unclear<'a>(&'a self, board: &'a Board) -> impl Iterator<Item = &'a str> {
        let named = self.workloads.iter().zip(&board.distances);
        named.filter(|(_, distance)| !distance.is_clear).map(|(name, _)| name.as_str())
    }

    /// The largest clear harm on a board where the distance is not clear, which no share shows: the remedy, and its ratio to
    /// nothing.
    pub fn worst_harm<'a>(&'a self, board: &'a Board) -> Option<(&'a str, Worst)> {
        let is_harm = |ratio: &Estimate| ratio.low > NO_EFFECT;
        let of_one = |one: &'a Recovered| {
            let cells = one.ratios.iter().zip(&board.distances).zip(&self.workloads);
            let unclear = cells.filter(|((_, distance), _)| !distance.is_clear);
            unclear
                .filter_map(|((ratio, _), name)| Some((one.condition.as_str(), name, ratio.filter(is_harm)?)))
        };
        let all = board.remedies.iter().flat_map(of_one);
        let (condition, workload, value) = all.max_by(|a, b| a.2.value.total_cmp(&b.2.value))?;
        let of = self.unclear(board).count();
        Some((condition, Worst { workload: workload.clone(), of, value }))
    }
}

/// A workload: its name, and the case if the scenario has cases.
type Workload<'a> = (String, Option<&'a str>);

/// The runs that a scoreboard is made from.
struct Runs<'a> {
    scenario: &'a Scenario,
    observations: &'a [Observation],
    nothing: &'a str,
    /// The ideals that were measured, and the names of their conditions.
    ideals: &'a [(Remedy, &'a str)],
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

    /// All conditions but those that they are measured against.
    fn others(&self) -> impl Iterator<Item = &'a str> {
        let (nothing, ideals) = (self.nothing, self.ideals);
        let names = self.scenario.chosen().map(|(name, _)| name.as_str());
        names.filter(move |name| *name != nothing && ideals.iter().all(|(_, ideal)| name != ideal))
    }

    /// An undisturbed guest, and the other ideals.
    fn references(&self, ideal: Remedy) -> impl Iterator<Item = &'a str> {
        let undisturbed = self.others().find(|name| self.is_undisturbed(name));
        let others = self.ideals.iter().filter(move |(other, _)| *other != ideal).map(|(_, name)| *name);
        undisturbed.into_iter().chain(others)
    }

    /// Whether neither the condition nor a case's quotas disturb the guest, in any case.
    fn is_undisturbed(&self, condition: &str) -> bool {
        let is_in = |(_, case): &Workload| self.scenario.is_undisturbed(condition, *case);
        self.workloads().iter().all(is_in)
    }

    /// The conditions that are scored: those that are disturbed.
    fn remedies(&self) -> impl Iterator<Item = &'a str> {
        self.others().filter(|name| !self.is_undisturbed(name))
    }

    fn values(&self, metric: &str, case: Option<&str>, condition: &str) -> Vec<f64> {
        self.of_runs(case, condition, |run| run.value(metric))
    }

    fn of_runs(
        &self,
        case: Option<&str>,
        condition: &str,
        value: impl Fn(&Observation) -> Option<f64>,
    ) -> Vec<f64> {
        let of = |run: &&Observation| run.is_of_case(case, condition);
        self.observations.iter().filter(of).filter_map(value).collect()
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

    fn board(&self, (ideal, best): (Remedy, &str), metric: &'static str, workloads: &[Workload]) -> Board {
        let ends: Vec<[Vec<f64>; 2]> = workloads
            .iter()
            .map(|(_, case)| [self.nothing, best].map(|name| self.values(metric, *case, name)))
            .collect();
        let distances: Vec<Distance> = ends.iter().map(|ends| self.distance(metric, ends)).collect();
        let recovered = |condition: &str| self.recovered(metric, condition, workloads, &ends, &distances);
        Board {
            ideal,
            metric,
            remedies: self.remedies().map(recovered).collect(),
            references: self.references(ideal).map(recovered).collect(),
            distances,
        }
    }

    fn recovered(
        &self,
        metric: &str,
        condition: &str,
        workloads: &[Workload],
        ends: &[[Vec<f64>; 2]],
        distances: &[Distance],
    ) -> Recovered {
        let part = |((name, case), [nothing, ideal]): (&Workload, &[Vec<f64>; 2])| {
            (name.clone(), vec![nothing.clone(), self.values(metric, *case, condition), ideal.clone()])
        };
        let parts: Vec<Part> = workloads.iter().zip(ends).map(part).collect();
        let purpose = format!("recovery {metric} {condition}");
        let share_of = |((_, groups), distance): (&Part, &Distance)| {
            distance.is_clear.then(|| self.estimate(groups, &purpose, share)).flatten()
        };
        let ratio_of = |(_, groups): &Part| {
            self.estimate(&groups[..2], &format!("ratio {metric} {condition}"), |medians| {
                statistics::log_ratio(medians[1], medians[0]).map(f64::exp)
            })
        };
        let shares = parts.iter().zip(distances).map(share_of).collect();
        let ratios = parts.iter().map(ratio_of).collect();
        let clear = parts.into_iter().zip(distances).filter(|(_, distance)| distance.is_clear);
        let smallest = self.smallest(clear.map(|(part, _)| part).collect(), &purpose, share);
        Recovered { condition: condition.into(), shares, ratios, smallest }
    }

    fn distance(&self, metric: &str, [nothing, ideal]: &[Vec<f64>; 2]) -> Distance {
        let purpose = format!("distance {metric}");
        let ratio = self.estimate(&[nothing.clone(), ideal.clone()], &purpose, |medians| {
            statistics::log_ratio(medians[0], medians[1]).map(f64::exp)
        });
        let can_tell = statistics::least_p(nothing.len(), ideal.len()) < SIGNIFICANT_BELOW;
        Distance { ratio, is_clear: can_tell && ratio.is_some_and(|ratio| ratio.low > NO_EFFECT) }
    }

    fn cost(&self, condition: &str, workloads: &[Workload]) -> Cost {
        let largest = COSTS.map(|Price { metric, per, is_rise }| {
            let of_run = |run: &Observation| {
                let divisor = per.map_or(Some(1.0), |per| run.value(per)).filter(|divisor| *divisor > 0.0)?;
                Some(run.value(metric)? / divisor)
            };
            let part = |(name, case): &Workload| {
                let groups = [self.nothing, condition].map(|name| self.of_runs(*case, name, of_run));
                (name.clone(), groups.into())
            };
            let gain = |medians: &[f64]| {
                let rise = (medians[0] > 0.0).then(|| medians[1] / medians[0] - 1.0)?;
                Some(if is_rise { -rise } else { rise })
            };
            let is_measured = |part: &Part| seen(part, gain).is_some();
            let parts: Vec<Part> = workloads.iter().map(part).filter(is_measured).collect();
            let Worst { workload, of, value } =
                self.smallest(parts, &format!("cost {metric} {condition}"), gain)?;
            let value = Estimate { value: -value.value, low: -value.high, high: -value.low };
            Some(Worst { workload, of, value })
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
        let named = |part: &Part| Some((part.0.clone(), seen(part, &value)?));
        let seen: Vec<(String, f64)> = parts.iter().map(named).collect::<Option<_>>()?;
        let of = seen.len();
        let (workload, _) = seen.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let size = parts[0].1.len();
        let groups: Vec<Vec<f64>> = parts.into_iter().flat_map(|(_, groups)| groups).collect();
        let value = self.estimate(&groups, &format!("smallest {purpose}"), |medians| {
            let values: Option<Vec<f64>> = medians.chunks(size).map(&value).collect();
            values?.into_iter().min_by(f64::total_cmp)
        })?;
        Some(Worst { workload, of, value })
    }
}

/// A workload's name, and its groups of values.
type Part = (String, Vec<Vec<f64>>);

/// The value of the medians of a workload's groups.
fn seen((_, groups): &Part, value: impl Fn(&[f64]) -> Option<f64>) -> Option<f64> {
    let medians: Option<Vec<f64>> = groups.iter().map(|group| statistics::median(group)).collect();
    value(&medians?)
}

/// The share of the distance that is recovered; the medians are those without a remedy, with it, and of the ideal.
/// `None` without a distance.
fn share(medians: &[f64]) -> Option<f64> {
    let &[nothing, treated, ideal] = medians else { return None };
    let distance = statistics::log_ratio(nothing, ideal).filter(|distance| *distance > 0.0)?;
    Some(statistics::log_ratio(nothing, treated)? / distance)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
