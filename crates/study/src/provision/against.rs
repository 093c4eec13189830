//! Lays measured runs beside an estimate of the same conditions.
//!
//! A condition agrees if the predicted p95 of extra memory is within a factor of [`FACTOR`] of the measured one, and if the
//! upper bound of the predicted p99.9 is not below the largest measured peak. Extra memory below the noise of the measured
//! baseline counts as that noise, on both sides: whether 1 or 2 MiB are less than nothing is no question.

use serde::{Deserialize, Serialize};

use super::estimate::{FLOOR_BYTES, Provision, RISKS};
use super::peak;
use crate::observe::metric;
use crate::recorded::record::Study;
use crate::scenario::{BadScenario, Result};
use crate::statistics;

/// Most that the p95 may be off.
pub const FACTOR: f64 = 2.0;

/// The conditions of a measured study beside the estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Extra memory below this is noise, bytes: the spread of the measured baseline's peaks, and at least [`FLOOR_BYTES`].
    pub floor_bytes: f64,
    /// Each condition that both have.
    pub checked: Vec<Checked>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Its name.
    pub condition: String,
    /// Measured runs.
    pub runs: usize,
    /// p95 of measured extra memory, bytes.
    pub measured_p95_bytes: f64,
    /// The largest measured extra memory, bytes.
    pub measured_largest_bytes: f64,
    /// p95 of the estimate, bytes.
    pub predicted_p95_bytes: f64,
    /// Upper bound of the estimate's p99.9, bytes.
    pub predicted_bound_bytes: f64,
    /// Whether both p95 are within the factor.
    pub is_near: bool,
    /// Whether the bound is not below the largest.
    pub is_bounded: bool,
}

impl Against {
    /// Of a study, or of one of its cases.
    ///
    /// # Errors
    /// It has no baseline with a footprint, or no condition of the estimate.
    pub fn of(answer: &Provision, measured: &Study, case: Option<&str>) -> Result<Against> {
        let peaks = |condition: &str| -> Vec<f64> {
            let runs = measured.runs_in(case).into_iter().filter(|run| run.condition == condition);
            runs.filter_map(|run| run.value(metric::FOOTPRINT_PEAK)).collect()
        };
        let baseline = measured.scenario.baseline();
        let base = peaks(baseline);
        let problem = format!("the record has no footprint of its baseline, {baseline:?}");
        let median = statistics::median(&base).ok_or_else(|| BadScenario::new("--against", problem))?;
        let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let floor_bytes = (largest(&base) - median).max(FLOOR_BYTES);
        let check = |row: &super::Row| {
            let extra: Vec<f64> = peaks(&row.condition).iter().map(|peak| (peak - median).max(0.0)).collect();
            let measured_largest_bytes = largest(&extra);
            let measured_p95_bytes = peak::quantile(&extra, RISKS[1]).map(|bound| bound.value)?;
            let (p95, bound) = (row.extra[1].value, row.extra[2].upper);
            let off = (p95.max(floor_bytes) / measured_p95_bytes.max(floor_bytes)).ln().abs();
            Some(Checked {
                condition: row.condition.clone(),
                runs: extra.len(),
                measured_p95_bytes,
                measured_largest_bytes,
                predicted_p95_bytes: p95,
                predicted_bound_bytes: bound,
                is_near: off <= FACTOR.ln() + 1e-12,
                is_bounded: bound.max(floor_bytes) >= measured_largest_bytes,
            })
        };
        let checked: Vec<Checked> = answer.rows.iter().filter_map(check).collect();
        let problem = "no condition of the record has two runs with a footprint".to_string();
        if checked.is_empty() { Err(BadScenario::new("--against", problem)) } else { Ok(Against { floor_bytes, checked }) }
    }

    /// Conditions that do not agree.
    pub fn wrong(&self) -> impl Iterator<Item = &Checked> {
        self.checked.iter().filter(|one| !(one.is_near && one.is_bounded))
    }
}
