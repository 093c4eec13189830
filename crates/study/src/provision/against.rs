//! Compares an estimate with measured runs of the same conditions.
//!
//! A condition agrees if the predicted p95 of extra memory is within a factor of [`FACTOR`] of the measured one, and if the
//! upper bound of the predicted p99.9 is not below the largest measured peak. Where both p95 are below the noise of the measured
//! undisturbed peaks, they agree: whether 1 or 2 MiB are less than nothing is no question. As soon as one of them is above
//! it, both count as they are.
//!
//! Both p95 are by [`peak::quantile`]. It fits a tail to few windows and counts in many, so that with other numbers of windows
//! the estimators differ; the report says which.

use serde::{Deserialize, Serialize};

use super::estimate::{FLOOR_BYTES, Provision, RISKS};
use super::{peak, recorded};
use crate::observe::metric;
use crate::recorded::record::Study;
use crate::scenario::{BadScenario, Result};
use crate::statistics;

/// The largest factor between the predicted and the measured p95 that counts as agreement.
pub const FACTOR: f64 = 2.0;

/// The conditions of a measured study beside the estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Extra memory below this is noise, bytes: the spread of the measured undisturbed peaks, and at least [`FLOOR_BYTES`].
    pub floor_bytes: f64,
    /// Each condition that both the estimate and the study have.
    pub checked: Vec<Checked>,
    /// Disturbed conditions of the record that are not checked: the simulator cannot do them, or fewer than two of their runs
    /// have a footprint.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// The comparison in one condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The condition's name.
    pub condition: String,
    /// Number of measured runs.
    pub runs: usize,
    /// Simulated ones.
    #[serde(default)]
    pub predicted_runs: usize,
    /// p95 of measured extra memory, bytes.
    pub measured_p95_bytes: f64,
    /// The largest measured extra memory, bytes.
    pub measured_largest_bytes: f64,
    /// p95 of the estimate, bytes.
    pub predicted_p95_bytes: f64,
    /// Upper bound of the estimate's p99.9, bytes.
    pub predicted_bound_bytes: f64,
    /// Whether both p95 are below the floor. Agreement then only means that memory grows in neither.
    pub is_noise: bool,
    /// Whether the two p95 are within the factor of each other.
    pub is_near: bool,
    /// Whether the bound is at least the largest measured extra memory.
    pub is_bounded: bool,
}

impl Against {
    /// Compares an answer with a study, or with one of its cases.
    ///
    /// # Errors
    /// It has no undisturbed condition with a footprint, or no condition of the estimate.
    pub fn of(answer: &Provision, measured: &Study, case: Option<&str>) -> Result<Against> {
        let peaks = |condition: &str| -> Vec<f64> {
            let runs = measured.runs_in(case).into_iter().filter(|run| run.condition == condition);
            runs.filter_map(|run| run.value(metric::FOOTPRINT_PEAK)).collect()
        };
        let undisturbed = recorded::undisturbed(measured, case)
            .map_err(|error| BadScenario::new("--against", error.problem))?;
        let base = peaks(undisturbed);
        let problem = format!("the record has no footprint of its undisturbed condition, {undisturbed:?}");
        let median = statistics::median(&base).ok_or_else(|| BadScenario::new("--against", problem))?;
        let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let floor_bytes = (largest(&base) - median).max(FLOOR_BYTES);
        let check = |row: &super::Row| {
            let extra: Vec<f64> = peaks(&row.condition).iter().map(|peak| peak - median).collect();
            let measured_largest_bytes = largest(&extra);
            let measured_p95_bytes = peak::quantile(&extra, RISKS[1]).map(|bound| bound.value.max(0.0))?;
            let (p95, bound) = (row.extra[1].value, row.extra[2].upper);
            let is_noise = p95.max(measured_p95_bytes) <= floor_bytes;
            // One of them is above the floor, so the other one may be 0, and is then infinitely far.
            let is_near = is_noise || (p95 / measured_p95_bytes).ln().abs() <= FACTOR.ln() + 1e-12;
            Some(Checked {
                condition: row.condition.clone(),
                runs: extra.len(),
                predicted_runs: row.runs,
                measured_p95_bytes,
                measured_largest_bytes,
                predicted_p95_bytes: p95,
                predicted_bound_bytes: bound,
                is_noise,
                is_near,
                is_bounded: bound.max(floor_bytes) >= measured_largest_bytes,
            })
        };
        let checked: Vec<Checked> = answer.rows.iter().filter_map(check).collect();
        let is_left_out =
            |name: &&String| *name != undisturbed && !checked.iter().any(|one| one.condition == **name);
        let left_out =
            measured.scenario.chosen().map(|(name, _)| name).filter(is_left_out).cloned().collect();
        let problem = "no condition of the record has two runs with a footprint".to_string();
        if checked.is_empty() {
            Err(BadScenario::new("--against", problem))
        } else {
            Ok(Against { floor_bytes, checked, left_out })
        }
    }

    /// Conditions that do not agree.
    pub fn wrong(&self) -> impl Iterator<Item = &Checked> {
        self.checked.iter().filter(|one| !(one.is_near && one.is_bounded))
    }
}

#[cfg(test)]
mod tests {
    use super::super::arrange::{self, Wishes};
    use super::super::estimate::Asked;
    use super::*;
    use crate::observe::observation::{Observation, Provenance};
    use crate::scenario::{Scenario, overrides};
    use crate::units::MIB;

    /// Three runs of a baseline, and three of each of these conditions with this much extra memory, MiB.
    fn study(scenario: &Scenario, extra_mib: &[(&str, f64)]) -> Study {
        let mut runs = Vec::new();
        for (condition, extra) in extra_mib {
            for (repetition, spread) in [(0, -1.0), (1, 0.0), (2, 1.0)] {
                let provenance = Provenance { window_ns: 700 * 1_000_000, ..Provenance::default() };
                let mut run = Observation::new(condition, repetition, provenance);
                run.metrics.insert(metric::FOOTPRINT_PEAK.into(), (100.0 + extra + spread) * MIB as f64);
                runs.push(run);
            }
        }
        Study::new(scenario.clone(), runs, None)
    }

    #[test]
    fn a_condition_agrees_within_the_factor_and_below_the_bound() {
        let text = "name = 's'\ntitle = 't'\nworkload = { kind = 'memory' }\n[conditions.base]\n[conditions.one]\nhogs = 1\n\
                    [conditions.two]\nhogs = 2\n[conditions.three]\nhogs = 3\n\
                    [conditions.four]\nhogs = 4\n[conditions.absent]\nhogs = 5";
        let scenario = overrides::read(text, None, &[]).unwrap();
        let measured = study(
            &scenario,
            &[("base", 0.0), ("one", 50.0), ("two", 200.0), ("three", -20.0), ("four", 0.5)],
        );
        let wishes = Wishes { ratios: Vec::new(), remedies: None, varied: false, repeat: 3, seed: 1 };
        let arranged =
            arrange::as_measured(&scenario.of_case(None).unwrap(), &measured, None, &wishes).unwrap();
        assert_eq!(arranged.scenario.run.window_ms, 700, "as long as measured");
        let extra = [
            ("undisturbed", 0.0),
            ("one", 60.0),
            ("two", 60.0),
            ("three", 1.0),
            ("four", 5.0),
            ("absent", 9.0),
        ];
        let simulated = study(&arranged.scenario, &extra);
        let asked = Asked { source: String::new(), risk: 0.999, budget_bytes: None };
        let answer = super::super::Provision::of(&simulated, &arranged.cells, &asked).unwrap();
        let found = Against::of(&answer, &measured, None).unwrap();
        assert_eq!(found.floor_bytes, FLOOR_BYTES);
        let told: Vec<_> = found
            .checked
            .iter()
            .map(|one| (one.condition.as_str(), one.is_noise, one.is_near, one.is_bounded))
            .collect();
        assert_eq!(
            told,
            [
                ("one", false, true, true),
                ("two", false, false, false),
                ("three", true, true, true),
                // Only the predicted p95 is above the floor, and by less than the factor; the measured one counts as it is.
                ("four", false, false, true),
            ]
        );
        assert_eq!(found.wrong().count(), 2);
        assert_eq!((found.checked[0].runs, found.checked[0].predicted_runs), (3, 3));
        assert_eq!(found.left_out, ["absent"]);
        let other = study(&scenario, &[("one", 1.0)]);
        assert!(
            Against::of(&answer, &other, None)
                .unwrap_err()
                .to_string()
                .contains("no footprint of its undisturbed condition, \"base\"")
        );
        let mut all_disturbed = measured.clone();
        all_disturbed.scenario.conditions["base"].hogs = 1;
        assert_eq!(
            Against::of(&answer, &all_disturbed, None).unwrap_err().to_string(),
            "--against: the host disturbs the guest under \"base\"; record a condition without neighbours, quotas or pinning"
        );
    }
}
