//! What every ground is: something that runs scenarios, says how things go, and gives what was observed.

use std::time::{Duration, Instant};

use crate::observe::observation::{Observation, Standing};
use crate::scenario::{BadScenario, PlannedRun, Scenario};

/// Runs scenarios: the simulator, real guests, real threads, real Xen. A value has what its scenarios need of this machine.
pub trait Ground {
    /// What can go wrong.
    type Error;

    /// How many runs a scenario has, and about how long they take, in words.
    fn length(scenario: &Scenario) -> String
    where
        Self: Sized;

    /// Refuses what cannot be run on this machine. Takes no time worth mentioning, and leaves nothing behind.
    ///
    /// # Errors
    /// What this machine lacks, or the key that asks for too much.
    fn check(&self, scenario: &Scenario) -> Result<(), Self::Error>;

    /// Works through the scenario's plan.
    fn run(&self, scenario: Scenario, progress: &mut dyn Progress) -> Finished<Self::Error>;
}

/// Receives the progress of runs.
pub trait Progress {
    /// A stage of the preparation.
    fn preparing(&mut self, what: &str);
    /// Run `number` of `total` is at a stage: `3 of 20, overcommitted: boots`.
    fn running(&mut self, number: usize, total: usize, condition: &str, stage: &str);
    /// A run has ended.
    fn ended(&mut self, number: usize, total: usize, observation: &Observation);
    /// A warning for the user.
    fn warning(&mut self, text: &str);
}

/// The result of a plan: the finished runs, and the error that ended it early.
#[derive(Debug)]
pub struct Finished<E> {
    /// The scenario as it was run.
    pub scenario: Scenario,
    /// All finished runs in the order of the plan.
    pub observations: Vec<Observation>,
    /// Why some runs are missing.
    pub error: Option<E>,
}

impl<E> Finished<E> {
    /// A plan of which no run could begin.
    pub fn failed(scenario: Scenario, error: E) -> Finished<E> {
        Finished { scenario, observations: Vec::new(), error: Some(error) }
    }
}

/// Works through a scenario's plan, one run at a time: repetitions of all conditions, interleaved, in an order from the
/// seed. A run during which others used more of the machine than `run.foreign_cpu_limit_percent` is done again, in the
/// whole study at most `run.redo_limit` times. `run` reports its stages through the function that it is given.
///
/// # Errors
/// The first error of the plan or of a run; what had finished is in `observations`.
pub fn work_through<E: From<BadScenario>>(
    scenario: &Scenario,
    observations: &mut Vec<Observation>,
    progress: &mut dyn Progress,
    mut run: impl FnMut(&PlannedRun, &mut dyn FnMut(&str)) -> Result<Observation, E>,
) -> Result<(), E> {
    let (mut queue, mut number) = (scenario.plan()?.into_iter(), 0);
    let mut redos = scenario.run.redo_limit;
    let mut total = queue.len();
    let mut again = None;
    while let Some(planned) = again.take().or_else(|| queue.next()) {
        number += 1;
        let title = planned.title();
        let mut observation =
            run(&planned, &mut |stage: &str| progress.running(number, total, &title, stage))?;
        if observation.provenance.foreign_cpu_percent > scenario.run.foreign_cpu_limit_percent {
            observation.standing = if redos > 0 { Standing::Redone } else { Standing::Kept };
        }
        // Traces are large, and only the first one of each condition is ever shown.
        if observation.sweep.is_some()
            || observations.iter().any(|earlier: &Observation| earlier.is_of(&observation.condition))
        {
            observation.trace = None;
        }
        if observation.standing == Standing::Redone {
            redos -= 1;
            total += 1;
            again = Some(planned);
        }
        progress.ended(number, total, &observation);
        observations.push(observation);
    }
    Ok(())
}

/// [`work_through`] for a ground that keeps what had finished beside the error.
pub fn finish<E: From<BadScenario>>(
    scenario: Scenario,
    progress: &mut dyn Progress,
    run: impl FnMut(&PlannedRun, &mut dyn FnMut(&str)) -> Result<Observation, E>,
) -> Finished<E> {
    let mut observations = Vec::new();
    let error = work_through(&scenario, &mut observations, progress, run).err();
    Finished { scenario, observations, error }
}

/// Estimates the time that is left of a plan from the time of its finished runs.
pub fn time_left(started: Instant, done: usize, total: usize) -> Option<Duration> {
    let left = total.checked_sub(done)? as u32;
    (done > 0).then(|| started.elapsed() / done as u32 * left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::observation::Provenance;
    use crate::scenario::overrides;

    /// Keeps number, total and standing of runs that have ended.
    #[derive(Default)]
    struct Ended(Vec<(usize, usize, Standing)>);

    impl Progress for Ended {
        fn preparing(&mut self, _: &str) {}
        fn running(&mut self, _: usize, _: usize, _: &str, _: &str) {}
        fn ended(&mut self, number: usize, total: usize, observation: &Observation) {
            self.0.push((number, total, observation.standing));
        }
        fn warning(&mut self, _: &str) {}
    }

    fn scenario() -> Scenario {
        let text = "
            name = 't'
            title = 't'
            run = { repeat = 2, redo_limit = 2, foreign_cpu_limit_percent = 5 }
            workload = { kind = 'memory' }
            [conditions.a]
            [conditions.b]
        ";
        overrides::read(text, None, &[]).unwrap()
    }

    fn observed(planned: &PlannedRun, foreign_cpu_percent: f64) -> Observation {
        Observation {
            condition: planned.condition.clone(),
            repetition: planned.repetition,
            standing: Standing::Accepted,
            case: planned.case.clone(),
            sweep: planned.sweep.clone(),
            provenance: Provenance { foreign_cpu_percent, ..Provenance::default() },
            metrics: Default::default(),
            distributions: Default::default(),
            timelines: Default::default(),
            holdouts: Vec::new(),
            stalls: Vec::new(),
            trace: None,
            tape: None,
            replayed: None,
        }
    }

    /// Runs the plan with that much foreign CPU time in its runs, and returns the reported progress.
    fn run_with(foreign: &[f64]) -> (Vec<Observation>, Vec<(usize, usize, Standing)>) {
        let (mut observations, mut ended, mut foreign) = (Vec::new(), Ended::default(), foreign.iter());
        let run = |planned: &PlannedRun, _: &mut dyn FnMut(&str)| -> Result<_, BadScenario> {
            Ok(observed(planned, *foreign.next().unwrap()))
        };
        work_through(&scenario(), &mut observations, &mut ended, run).unwrap();
        (observations, ended.0)
    }

    #[test]
    fn a_disturbed_run_is_done_again_at_once_until_the_limit_and_then_kept() {
        use Standing::{Accepted, Kept, Redone};
        let (observations, ended) = run_with(&[5.0, 5.1, 90.0, 4.9, 6.0, 0.0]);
        assert_eq!(
            ended,
            [
                (1, 4, Accepted),
                (2, 5, Redone),
                (3, 6, Redone),
                (4, 6, Accepted),
                (5, 6, Kept),
                (6, 6, Accepted)
            ]
        );
        let which = |index: usize| (observations[index].condition.as_str(), observations[index].repetition);
        assert!(which(1) == which(2) && which(2) == which(3), "the same run again");
        let mut counted: Vec<_> =
            (0..6).filter(|index| observations[*index].standing.counts()).map(which).collect();
        counted.sort_unstable();
        assert_eq!(counted, [("a", 0), ("a", 1), ("b", 0), ("b", 1)]);
    }

    #[test]
    fn what_had_finished_before_an_error_is_kept() {
        let (mut observations, mut runs) = (Vec::new(), 0);
        let run = |planned: &PlannedRun, _: &mut dyn FnMut(&str)| {
            runs += 1;
            if runs == 3 { Err(BadScenario::new("k", "p")) } else { Ok(observed(planned, 0.0)) }
        };
        let ended = work_through(&scenario(), &mut observations, &mut Ended::default(), run);
        assert_eq!((ended, observations.len()), (Err(BadScenario::new("k", "p")), 2));
    }
}
