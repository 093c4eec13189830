//! The curves of a sweep: one metric over the values of the swept key, for each condition.

use crate::recorded::record::Study;

/// One condition's curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Name of the condition.
    pub condition: String,
    /// In the order of the scenario's values. Values without a run are left out.
    pub points: Vec<Point>,
}

/// One value of the swept key.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The value.
    pub at: f64,
    /// The metric in each run that counts; never empty.
    pub values: Vec<f64>,
}

impl Study {
    /// The curves of a metric over that sweep, in the order of its conditions; none when it was not measured.
    pub fn curves(&self, sweep: &str, metric: &str) -> Vec<Curve> {
        let Some(swept) = self.scenario.sweeps.get(sweep) else { return Vec::new() };
        let point = |condition: &str, at: f64| {
            let runs = self.observations.iter().filter(|run| {
                let here = run.sweep.as_ref().is_some_and(|point| point.sweep == sweep && point.value == at);
                here && run.condition == condition && run.standing.counts()
            });
            let values: Vec<f64> = runs.filter_map(|run| run.value(metric)).collect();
            (!values.is_empty()).then_some(Point { at, values })
        };
        let of = |condition: &str| Curve {
            condition: condition.into(),
            points: swept.values.iter().filter_map(|value| point(condition, value.number()?)).collect(),
        };
        self.scenario.swept(swept).map(of).filter(|curve| !curve.points.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::comparison::Comparison;
    use crate::observe::observation::{Observation, Provenance, Standing, SweepPoint};
    use crate::scenario::overrides;

    fn run(condition: &str, sweep: Option<f64>, value: f64, standing: Standing) -> Observation {
        Observation {
            condition: condition.into(),
            repetition: 0,
            standing,
            case: None,
            sweep: sweep.map(|value| SweepPoint { sweep: "burst".into(), value }),
            provenance: Provenance::default(),
            metrics: [("gp_mean_ns".to_string(), value)].into(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            stalls: Vec::new(),
            trace: None,
            tape: None,
            replayed: None,
        }
    }

    #[test]
    fn a_sweep_gives_curves_and_enters_no_comparison() {
        let text = "
            name = 't'
            title = 't'
            [workload]
            kind = 'memory'
            [conditions.a]
            [conditions.b]
            [sweeps.burst]
            key = 'workload.burst'
            values = [1, 30, 10]
        ";
        let scenario = overrides::read(text, None, &[]).unwrap();
        let ok = Standing::Accepted;
        let mut observations = vec![
            run("b", Some(10.0), 7.0, ok),
            run("b", Some(1.0), 5.0, ok),
            run("b", Some(10.0), 8.0, ok),
            run("b", Some(30.0), 9.0, Standing::Redone),
            run("a", None, 2.0, ok),
        ];
        let study = Study::new(scenario.clone(), observations.clone(), None);
        assert_eq!(study.comparisons, [] as [Comparison; 0]);
        let points = vec![Point { at: 1.0, values: vec![5.0] }, Point { at: 10.0, values: vec![7.0, 8.0] }];
        assert_eq!(study.curves("burst", "gp_mean_ns"), [Curve { condition: "b".into(), points }]);
        assert_eq!(study.curves("burst", "gp_p99_ns"), []);
        observations.push(run("b", None, 4.0, ok));
        let study = Study::new(scenario, observations, None);
        assert_eq!(study.comparisons[0].row("gp_mean_ns").unwrap().treated, [4.0]);
    }
}
