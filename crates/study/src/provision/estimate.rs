//! Computes the answer from the finished runs.

use serde::{Deserialize, Serialize};

use super::against::Against;
use super::arrange::{Cell, UNDISTURBED};
use super::peak::{self, Bound};
use crate::observe::distribution::Distribution;
use crate::observe::metric;
use crate::observe::observation::{self, Observation};
use crate::recorded::record::Study;
use crate::scenario::{BadScenario, Remedy, Result};
use crate::statistics::{self, Estimate, of_medians};
use crate::units::{MIB, MILLISECOND_NS};

/// Version of the answer's JSON format.
pub const SCHEMA_VERSION: u32 = 1;
/// The risks for which extra memory is always given.
pub const RISKS: [f64; 3] = [0.5, 0.95, 0.999];
/// An input matters only if it changes extra memory by at least this much, bytes. Less is a slab or two.
pub const FLOOR_BYTES: f64 = 4.0 * MIB as f64;

/// How much memory a VM needs at each ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provision {
    /// The [`SCHEMA_VERSION`] with which the answer was written.
    pub schema_version: u32,
    /// The subject of the plan: where the profile was made, or the scenario.
    pub source: String,
    /// The answer in sentences.
    pub headline: Vec<String>,
    /// Length of a window, ns. The peak at risk 0.95 is exceeded in one window of twenty.
    pub window_ns: u64,
    /// The risk that decides which ratios are safe.
    pub risk: f64,
    /// Memory available beyond the undisturbed peak, bytes, if a budget was given.
    pub budget_bytes: Option<u64>,
    /// Seed of the simulation.
    pub seed: u64,
    /// Hash over all simulated runs.
    pub result_hash: String,
    /// The undisturbed VM.
    pub undisturbed: Row,
    /// Each ratio or condition, without and with each remedy.
    pub rows: Vec<Row>,
    /// The highest safe ratio, without and with each remedy. Empty if there is no budget or there are no ratios.
    pub safe: Vec<Safe>,
    /// The effects of varied inputs.
    pub inputs: Vec<Input>,
    /// The comparison with measured runs of the same conditions, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    /// Where the answer goes beyond the conditions on which the simulator was checked, and what else makes it weak.
    pub flags: Vec<String>,
}

/// The results of one condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The condition's name.
    pub condition: String,
    /// Text that says what the condition is.
    pub label: String,
    /// Busy vCPUs on each pCPU, if the condition is a ratio.
    pub ratio: Option<f64>,
    /// The remedy, if any.
    pub remedy: Option<Remedy>,
    /// Number of repetitions that were used.
    pub runs: usize,
    /// Mean duration of the grace periods of all repetitions, ns.
    pub gp_mean_ns: f64,
    /// Their median duration, ns.
    pub gp_p50_ns: u64,
    /// The 99th percentile of their durations, ns.
    pub gp_p99_ns: u64,
    /// The longest duration, ns.
    pub gp_max_ns: u64,
    /// Extra memory at each of [`RISKS`]: the peak in a window beyond the median undisturbed peak, bytes; at least 0.
    pub extra: [Bound; 3],
    /// Extra memory at the risk that was asked for.
    pub extra_at_risk: Bound,
    /// The largest observed extra memory, bytes.
    pub extra_largest_bytes: f64,
    /// Median of extra memory with its 95 % interval, bytes.
    pub extra_median: Estimate,
    /// Peak of the unusable free space index, median and interval.
    pub unusable_index: Option<Estimate>,
    /// Operations a second, median and interval.
    pub throughput_per_s: Option<Estimate>,
}

/// The highest safe ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Safe {
    /// The remedy, if any.
    pub remedy: Option<Remedy>,
    /// The ratio; `None` if not even the smallest is safe.
    pub ratio: Option<f64>,
    /// Whether this is the largest simulated ratio.
    pub is_largest: bool,
}

/// The effect of a varied input on the median of extra memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The condition in which the input has its own value.
    pub of: String,
    /// What was changed.
    pub what: String,
    /// Median of extra memory with the input's own value, bytes.
    pub before_bytes: f64,
    /// Median of extra memory with the varied input, bytes, beyond the undisturbed peak with the same varied input.
    pub after_bytes: f64,
}

/// What the answer depends on besides the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The subject of the plan.
    pub source: String,
    /// The risk that decides which ratios are safe, from 0 to 1.
    pub risk: f64,
    /// The memory budget, bytes.
    pub budget_bytes: Option<u64>,
}

impl Provision {
    /// The answer of a study of arranged conditions.
    ///
    /// # Errors
    /// The study ended early, so a condition has fewer than two runs.
    pub fn of(study: &Study, cells: &[Cell], asked: &Asked) -> Result<Provision> {
        let base_of =
            |condition: &str| statistics::median(&study.values_of(metric::FOOTPRINT_PEAK, condition));
        let plain = Cell {
            condition: UNDISTURBED.into(),
            label: UNDISTURBED.into(),
            ratio: None,
            remedy: None,
            varied: None,
        };
        let base = base_of(UNDISTURBED).ok_or_else(|| few(UNDISTURBED))?;
        let row = |cell: &Cell| Row::of(study, cell, base, asked.risk);
        let undisturbed = row(&plain)?;
        let rows: Vec<Row> =
            cells.iter().filter(|cell| cell.varied.is_none()).map(row).collect::<Result<_>>()?;
        let input = |cell: &Cell| {
            let varied = cell.varied.as_ref()?;
            let after = base_of(&varied.undisturbed)
                .ok_or_else(|| few(&varied.undisturbed))
                .and_then(|base| Row::of(study, cell, base, asked.risk));
            Some(after.map(|after| {
                Input {
                    of: varied.of.clone(),
                    what: varied.what.clone(),
                    before_bytes: rows
                        .iter()
                        .find(|row| row.condition == varied.of)
                        .map_or(0.0, |row| row.extra_median.value),
                    after_bytes: after.extra_median.value,
                }
            }))
        };
        let inputs = cells.iter().filter_map(input).collect::<Result<Vec<Input>>>()?;
        Ok(Provision {
            schema_version: SCHEMA_VERSION,
            source: asked.source.clone(),
            headline: Vec::new(),
            window_ns: study.scenario.run.window_ms * MILLISECOND_NS,
            risk: asked.risk,
            budget_bytes: asked.budget_bytes,
            seed: study.scenario.run.seed,
            result_hash: study.result_hash().unwrap_or_default(),
            safe: asked.budget_bytes.map_or(Vec::new(), |budget| safe(&rows, budget as f64)),
            undisturbed,
            rows,
            inputs,
            against: None,
            flags: Vec::new(),
        })
    }

    /// The answer as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every type of it has a JSON form") + "\n"
    }
}

fn few(condition: &str) -> BadScenario {
    BadScenario::new(condition, "fewer than two runs have finished; an estimate needs more")
}

impl Row {
    fn of(study: &Study, cell: &Cell, base: f64, risk: f64) -> Result<Row> {
        let runs: Vec<&Observation> = study.runs_of(&cell.condition).collect();
        let mut durations = Distribution::default();
        let of_runs = runs.iter().filter_map(|run| run.distributions.get(observation::GP_DURATIONS));
        of_runs.for_each(|one| durations.merge(one));
        let peaks = study.values_of(metric::FOOTPRINT_PEAK, &cell.condition);
        let extra: Vec<f64> = peaks.iter().map(|peak| peak - base).collect();
        let bound = |share: f64| {
            Ok(peak::quantile(&extra, share).ok_or_else(|| few(&cell.condition))?.at_least_none())
        };
        let longest = runs.iter().filter_map(|run| run.value(metric::GP_MAX)).fold(0.0, f64::max);
        let median = |values: &[f64], purpose: &str| {
            let mut rng =
                statistics::stream(study.scenario.run.seed, &format!("plan {} {purpose}", cell.condition));
            of_medians(&[values], &mut rng, |medians| medians.first().copied())
        };
        let of_metric = |id: &str| median(&study.values_of(id, &cell.condition), id);
        Ok(Row {
            condition: cell.condition.clone(),
            label: cell.label.clone(),
            ratio: cell.ratio,
            remedy: cell.remedy,
            runs: runs.len(),
            gp_mean_ns: durations.mean_ns().unwrap_or(longest),
            gp_p50_ns: durations.quantile_ns(0.5).unwrap_or(longest as u64),
            gp_p99_ns: durations.quantile_ns(0.99).unwrap_or(longest as u64),
            gp_max_ns: longest as u64,
            extra: [bound(RISKS[0])?, bound(RISKS[1])?, bound(RISKS[2])?],
            extra_at_risk: bound(risk)?,
            extra_largest_bytes: extra.iter().copied().fold(0.0, f64::max),
            extra_median: median(&extra, "extra").map(at_least_none).ok_or_else(|| few(&cell.condition))?,
            unusable_index: of_metric(metric::UNUSABLE_PEAK),
            throughput_per_s: of_metric(metric::THROUGHPUT),
        })
    }

    /// Whether the upper bound of extra memory at the risk is within the budget.
    pub fn is_within(&self, budget_bytes: f64) -> bool {
        self.extra_at_risk.upper <= budget_bytes
    }
}

/// A guest that needs less than undisturbed needs no extra memory.
fn at_least_none(Estimate { value, low, high }: Estimate) -> Estimate {
    Estimate { value: value.max(0.0), low: low.max(0.0), high: high.max(0.0) }
}

/// The highest safe ratio, without a remedy and with each. A ratio is safe only if all lower simulated ratios are safe
/// too, because a guest at a higher ratio can need less memory: it gets less CPU time and frees less.
fn safe(rows: &[Row], budget_bytes: f64) -> Vec<Safe> {
    let mut remedies: Vec<Option<Remedy>> = vec![None];
    remedies.extend(rows.iter().filter(|row| row.remedy.is_some()).map(|row| row.remedy));
    remedies.dedup();
    let mut seen = Vec::new();
    remedies.retain(|remedy| {
        !seen.contains(remedy) && {
            seen.push(*remedy);
            true
        }
    });
    let of = |remedy: Option<Remedy>| {
        // Ratio 1 is simulated only without remedies, because without neighbours a remedy has nothing to do.
        let tried = |row: &&Row| row.ratio.is_some() && (row.remedy == remedy || row.ratio == Some(1.0));
        let with: Vec<&Row> = rows.iter().filter(tried).collect();
        let safe: Vec<f64> =
            with.iter().take_while(|row| row.is_within(budget_bytes)).filter_map(|row| row.ratio).collect();
        (!with.is_empty()).then(|| Safe {
            remedy,
            ratio: safe.last().copied(),
            is_largest: safe.len() == with.len(),
        })
    };
    remedies.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, remedy: Option<Remedy>, upper_mib: f64) -> Row {
        let bound = Bound { value: 0.0, upper: upper_mib * MIB as f64, basis: peak::Basis::Counted };
        let none = Estimate { value: 0.0, low: 0.0, high: 0.0 };
        Row {
            condition: String::new(),
            label: String::new(),
            ratio: Some(ratio),
            remedy,
            runs: 10,
            gp_mean_ns: 0.0,
            gp_p50_ns: 0,
            gp_p99_ns: 0,
            gp_max_ns: 0,
            extra: [bound; 3],
            extra_at_risk: bound,
            extra_largest_bytes: 0.0,
            extra_median: none,
            unusable_index: None,
            throughput_per_s: None,
        }
    }

    #[test]
    fn a_ratio_is_safe_if_all_below_it_are() {
        let boost = Some(Remedy::Boost);
        let rows = [
            row(1.0, None, 5.0),
            row(1.5, None, 300.0),
            row(1.5, boost, 20.0),
            // Extra memory falls again, because the guest hardly runs.
            row(2.0, None, 90.0),
            row(2.0, boost, 30.0),
        ];
        let found = |budget_mib: f64| {
            safe(&rows, budget_mib * MIB as f64)
                .iter()
                .map(|safe| (safe.remedy, safe.ratio, safe.is_largest))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(100.0), [(None, Some(1.0), false), (boost, Some(2.0), true)]);
        assert_eq!(found(300.0), [(None, Some(2.0), true), (boost, Some(2.0), true)]);
        assert_eq!(found(4.0), [(None, None, false), (boost, None, false)]);
    }
}
