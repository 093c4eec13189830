//! Two conditions, pair by pair. Both run in each repetition, shortly after each other, so that drift of the machine
//! affects both. A ratio or a difference is taken within each repetition, and then summarised.

use crate::recorded::record::Study;
use crate::statistics::{self, Estimate};

impl Study {
    /// A metric under two conditions, for each repetition in which both have a run that counts.
    pub fn pairs(&self, metric: &str, condition: &str, reference: &str) -> Vec<(f64, f64)> {
        let partner = |repetition: u32| self.runs_of(reference).find(|run| run.repetition == repetition);
        self.runs_of(condition)
            .filter_map(|run| Some((run.value(metric)?, partner(run.repetition)?.value(metric)?)))
            .collect()
    }

    /// Median of a metric's ratios, condition over reference, each within a repetition, with its 95 % bootstrap interval;
    /// `None` when no repetition has one.
    pub fn paired_ratio(&self, metric: &str, condition: &str, reference: &str) -> Option<Estimate> {
        let pairs = self.pairs(metric, condition, reference);
        let ratios: Vec<f64> =
            pairs.iter().map(|(one, other)| one / other).filter(|ratio| ratio.is_finite()).collect();
        let purpose = format!("paired {metric} {condition}");
        let mut rng = statistics::stream(self.scenario.run.seed, &purpose);
        statistics::of_medians(&[&ratios], &mut rng, |medians| medians.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use crate::observe::observation::{Observation, Provenance, Standing};
    use crate::recorded::record::Study;
    use crate::scenario::overrides;

    fn run(condition: &str, repetition: u32, value: f64, standing: Standing) -> Observation {
        Observation {
            condition: condition.into(),
            repetition,
            standing,
            case: None,
            sweep: None,
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
    fn ratios_are_taken_within_a_repetition() {
        let text = "
            name = 't'
            title = 't'
            workload = { kind = 'memory' }
            [conditions.a]
            [conditions.b]
        ";
        let ok = Standing::Accepted;
        // The machine became ten times slower between the repetitions; b is always twice as slow as a.
        let observations = vec![
            run("b", 0, 8.0, ok),
            run("a", 0, 999.0, Standing::Redone),
            run("a", 0, 4.0, ok),
            run("a", 1, 40.0, ok),
            run("b", 1, 80.0, ok),
            run("b", 2, 5.0, ok),
        ];
        let study = Study::new(overrides::read(text, None, &[]).unwrap(), observations, None);
        assert_eq!(study.pairs("gp_mean_ns", "b", "a"), [(8.0, 4.0), (80.0, 40.0)]);
        let ratio = study.paired_ratio("gp_mean_ns", "b", "a").unwrap();
        assert_eq!((ratio.low, ratio.value, ratio.high), (2.0, 2.0, 2.0));
        assert_eq!(study.paired_ratio("gp_mean_ns", "b", "none"), None);
    }
}
