//! How far the simulator is from real guests: the same scenario run on both, condition by condition.
//!
//! The simulator is calibrated on baselines. So the baseline's errors are shown, but they do not enter the median:
//! that is over what the simulator predicts.

use crate::metric;
use crate::record::Study;
use crate::statistics;

/// What is compared.
pub const METRICS: [&str; 3] = [metric::GP_MEAN, metric::GP_P99, metric::BACKLOG_PEAK];

/// The simulator against real guests.
#[derive(Clone, Debug, PartialEq)]
pub struct Conformance {
    /// Name of the condition that does not enter the median.
    pub baseline: String,
    /// One for each condition that has runs on both sides and each of [`METRICS`] that both measured, in the order
    /// of the real study's conditions.
    pub rows: Vec<Row>,
}

/// One metric under one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the condition.
    pub condition: String,
    /// Which metric.
    pub metric: &'static str,
    /// Median over the runs with real guests, in the metric's unit.
    pub real: f64,
    /// Median over the simulated runs.
    pub simulated: f64,
}

impl Row {
    /// Simulated less real over real: -0.1 when the simulator says 10 % less. `None` when the real value is zero.
    pub fn error(&self) -> Option<f64> {
        (self.real != 0.0).then(|| (self.simulated - self.real) / self.real)
    }
}

/// The real one and the simulated one of two studies; `None` unless there is one of each.
pub(crate) fn real_and_simulated<'a>(first: &'a Study, second: &'a Study) -> Option<(&'a Study, &'a Study)> {
    match (first.is_simulated(), second.is_simulated()) {
        (false, true) => Some((first, second)),
        (true, false) => Some((second, first)),
        _ => None,
    }
}

impl Conformance {
    /// Compares two studies, in either order; `None` unless exactly one of them was simulated. (Of latencies, see
    /// [`crate::latency_conformance`].)
    pub fn between(first: &Study, second: &Study) -> Option<Conformance> {
        let (real, simulated) = real_and_simulated(first, second)?;
        (!real.scenario.workload.is_latency()).then(|| Conformance::of(real, simulated))
    }

    fn of(real: &Study, simulated: &Study) -> Conformance {
        let median = |study: &Study, condition: &str, metric: &str| {
            let runs = study.runs_of(condition);
            let values: Vec<f64> = runs.filter_map(|run| run.metrics.get(metric).copied()).collect();
            statistics::median(&values)
        };
        let row = |condition: &str, metric: &'static str| {
            Some(Row {
                condition: condition.into(),
                metric,
                real: median(real, condition, metric)?,
                simulated: median(simulated, condition, metric)?,
            })
        };
        let conditions = real.scenario.conditions.keys();
        let rows = conditions
            .flat_map(|condition| METRICS.into_iter().filter_map(move |metric| row(condition, metric)));
        Conformance { baseline: real.scenario.baseline().into(), rows: rows.collect() }
    }

    /// Median of the errors' magnitudes, of one metric or of all, without the baseline's; `None` when there is none.
    pub fn median_error(&self, metric: Option<&str>) -> Option<f64> {
        let counts =
            |row: &&Row| row.condition != self.baseline && metric.is_none_or(|metric| metric == row.metric);
        let errors = self.rows.iter().filter(counts).filter_map(|row| Some(row.error()?.abs()));
        statistics::median(&errors.collect::<Vec<f64>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Observation, Provenance, Standing};
    use crate::scenario::Ground;
    use crate::{overrides, units};

    const TEXT: &str = "
        name = 't'
        title = 't'
        [workload]
        kind = 'memory'
        [conditions.baseline]
        [conditions.quota]
        quota = [{ vcpu = 1, percent = 20 }]
        [conditions.hogs]
        hogs = 1
        [conditions.pinned]
        pcpus = [0]
    ";

    /// A study with one run for each condition and average GP duration in ms; the backlog's peak is 100 times that.
    fn study(ground: Ground, runs: &[(&str, f64)]) -> Study {
        let scenario = overrides::read(TEXT, Some(ground), &[]).unwrap();
        let run = |(condition, gp_ms): &(&str, f64)| Observation {
            condition: condition.to_string(),
            repetition: 0,
            standing: Standing::Accepted,
            case: None,
            sweep: None,
            provenance: Provenance { ground: format!("{ground}, 0.0.0"), ..Provenance::default() },
            metrics: [
                (metric::GP_MEAN.to_string(), gp_ms * units::MILLISECOND_NS as f64),
                (metric::BACKLOG_PEAK.to_string(), gp_ms * 100.0),
            ]
            .into(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            stalls: Vec::new(),
            trace: None,
        };
        Study::new(scenario, runs.iter().map(run).collect(), None)
    }

    #[test]
    fn errors_are_relative_to_real_guests_and_signed() {
        let real = study(Ground::Vm, &[("baseline", 4.0), ("quota", 20.0), ("quota", 30.0), ("quota", 10.0)]);
        let simulated = study(Ground::Sim, &[("baseline", 6.0), ("quota", 15.0), ("hogs", 5.0)]);
        let found = Conformance::between(&real, &simulated).unwrap();
        let seen: Vec<(&str, &str, Option<f64>)> =
            found.rows.iter().map(|row| (row.condition.as_str(), row.metric, row.error())).collect();
        let expected = [
            ("baseline", metric::GP_MEAN, Some(0.5)),
            ("baseline", metric::BACKLOG_PEAK, Some(0.5)),
            ("quota", metric::GP_MEAN, Some(-0.25)),
            ("quota", metric::BACKLOG_PEAK, Some(-0.25)),
        ];
        assert_eq!(seen, expected, "no row without runs on both sides, none for what was not measured");
        assert_eq!(Conformance::between(&simulated, &real), Some(found), "the order does not matter");
    }

    #[test]
    fn the_median_is_of_magnitudes_and_leaves_the_baseline_out() {
        let real = study(Ground::Vm, &[("baseline", 4.0), ("quota", 10.0), ("hogs", 10.0), ("pinned", 0.0)]);
        let simulated =
            study(Ground::Sim, &[("baseline", 40.0), ("quota", 7.0), ("hogs", 12.0), ("pinned", 1.0)]);
        let mut found = Conformance::between(&real, &simulated).unwrap();
        assert!(
            (found.median_error(None).unwrap() - 0.25).abs() < 1e-9,
            "a real value of zero has no relative error"
        );
        found.rows[2].simulated = 10.0 * units::MILLISECOND_NS as f64;
        assert!((found.median_error(Some(metric::GP_MEAN)).unwrap() - 0.1).abs() < 1e-9);
        assert!((found.median_error(Some(metric::BACKLOG_PEAK)).unwrap() - 0.25).abs() < 1e-9);
        found.rows.truncate(2);
        assert_eq!(found.median_error(None), None);
    }

    #[test]
    fn two_studies_of_a_kind_have_no_conformance() {
        let [real, simulated] = [Ground::Vm, Ground::Sim].map(|ground| study(ground, &[("baseline", 4.0)]));
        assert_eq!(Conformance::between(&real, &real), None);
        assert_eq!(Conformance::between(&simulated, &simulated), None);
    }
}
