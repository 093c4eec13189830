//! The share of the throughput lost to a disturbance that a placement of fio's jobs regains: (x - pinned) /
//! (undisturbed - pinned). It is taken within each repetition, because drift of the machine then affects all three
//! alike.
//!
//! 1 regains the whole loss, 0 is no better than jobs that never move, and below 0 is worse than that. The
//! undisturbed condition is the baseline; the pinned one is the first condition with a disturbance and with pinned
//! jobs.

use crate::observe::metric;
use crate::observe::observation::Observation;
use crate::recorded::record::Study;
use crate::scenario::{Placement, Scenario};
use crate::statistics::{self, Estimate};

/// The condition with a disturbance and with pinned jobs, if the scenario runs fio and has one.
pub fn pinned(scenario: &Scenario) -> Option<&str> {
    let is_pinned = |name: &str| {
        let under = scenario.under(name).ok()?;
        Some(under.workload.fio()?.placement == Placement::Pinned)
    };
    let mut disturbed = scenario.chosen().filter(|(_, condition)| !condition.is_undisturbed());
    disturbed.find(|(name, _)| is_pinned(name) == Some(true)).map(|(name, _)| name.as_str())
}

/// Sets [`metric::REGAINED`] in each run that counts and whose repetition has both references.
pub fn fill(scenario: &Scenario, observations: &mut [Observation]) {
    let Some(pinned) = pinned(scenario) else { return };
    let throughput = |run: &Observation| run.value(metric::THROUGHPUT);
    let of = |runs: &[Observation], condition: &str, repetition: u32| {
        let mut same = runs.iter().filter(|run| run.is_of(condition) && run.repetition == repetition);
        same.find_map(throughput)
    };
    for index in 0..observations.len() {
        let run = &observations[index];
        if !run.is_of(&run.condition) {
            continue;
        }
        let all = of(observations, scenario.baseline(), run.repetition);
        let least = of(observations, pinned, run.repetition);
        let (Some(x), Some(all), Some(least)) = (throughput(run), all, least) else { continue };
        // Where nothing was lost, nothing can be regained.
        if all > least {
            let share = (x - least) / (all - least);
            observations[index].metrics.insert(metric::REGAINED.into(), share);
        }
    }
}

impl Study {
    /// Median of the share that a condition regained, with its 95 % bootstrap interval.
    pub fn regained(&self, condition: &str) -> Option<Estimate> {
        let shares = self.values_of(metric::REGAINED, condition);
        // Named as when the published records were made, whose intervals are drawn again from it.
        let mut rng = statistics::stream(self.scenario.run.seed, &format!("given back {condition}"));
        statistics::of_medians(&[&shares], &mut rng, |medians| medians.first().copied())
    }

    /// Permutation test of a condition's throughput against that of pinned jobs; `None` for the pinned condition
    /// itself.
    pub fn regained_p(&self, condition: &str) -> Option<f64> {
        let pinned = pinned(&self.scenario).filter(|pinned| *pinned != condition)?;
        let (one, other) =
            (self.values_of(metric::THROUGHPUT, condition), self.values_of(metric::THROUGHPUT, pinned));
        let mut rng = statistics::stream(self.scenario.run.seed, &format!("given back p {condition}"));
        statistics::permutation_p(&one, &other, &mut rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::{Provenance, Standing};
    use crate::scenario::GroundKind;
    use crate::scenario::overrides;

    const TEXT: &str = "
        name = 't'
        title = 't'
        ground = 'vm'
        workload = { kind = 'fio', access = 'random', block_kib = 4 }
        [conditions.alone]
        [conditions.pinned]
        bursts = { for_ms = 25, every_ms = 60 }
        set = { workload.placement = 'pinned' }
        [conditions.moved]
        bursts = { for_ms = 25, every_ms = 60 }
        set = { workload.placement = 'migrate' }
    ";

    fn run(condition: &str, repetition: u32, throughput: f64) -> Observation {
        let mut run = Observation::new(condition, repetition, Provenance::default());
        run.metrics.insert(metric::THROUGHPUT.into(), throughput);
        run
    }

    #[test]
    fn the_share_is_of_the_same_repetition_and_of_runs_that_count() {
        let scenario = overrides::read(TEXT, Some(GroundKind::Vm), &[]).unwrap();
        assert_eq!(pinned(&scenario), Some("pinned"));
        // The machine is ten times slower in the second repetition; the third has no reference.
        let mut runs = vec![
            run("moved", 0, 900.0),
            Observation { standing: Standing::Redone, ..run("alone", 0, 1.0) },
            run("alone", 0, 1000.0),
            run("pinned", 0, 500.0),
            run("alone", 1, 100.0),
            run("moved", 1, 95.0),
            run("pinned", 1, 50.0),
            run("moved", 2, 95.0),
            run("alone", 2, 95.0),
        ];
        fill(&scenario, &mut runs);
        let shares: Vec<Option<f64>> =
            runs.iter().map(|run| run.metrics.get(metric::REGAINED).copied()).collect();
        assert_eq!(
            shares,
            [Some(0.8), None, Some(1.0), Some(0.0), Some(1.0), Some(0.9), Some(0.0), None, None]
        );
        let study = Study::new(scenario, runs, None);
        let estimate = study.regained("moved").unwrap();
        assert!((estimate.value - 0.85).abs() < 1e-9 && estimate.low == 0.8 && estimate.high == 0.9);
        assert_eq!(study.regained_p("pinned"), None);
        assert!(study.regained_p("moved").is_some_and(|p| p > 0.05), "two repetitions show nothing");
    }

    #[test]
    fn a_scenario_without_pinned_jobs_has_no_share() {
        let text = TEXT.replace("'pinned' }", "'free' }");
        let scenario = overrides::read(&text, Some(GroundKind::Vm), &[]).unwrap();
        let mut runs = vec![run("alone", 0, 10.0), run("pinned", 0, 5.0)];
        fill(&scenario, &mut runs);
        assert!(runs.iter().all(|run| !run.metrics.contains_key(metric::REGAINED)));
    }
}
