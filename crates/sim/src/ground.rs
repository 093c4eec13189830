//! The ground `sim`: runs the plan of a scenario, several runs at a time. Runs share nothing, so the number of threads
//! does not change the results.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use reprieve_study::ground::{Finished, Ground, Progress};
use reprieve_study::scenario::{PlannedRun, Workload};
use reprieve_study::units::{self, MILLISECOND_NS};
use reprieve_study::{Observation, Scenario, observation};

use crate::error::SimError;

pub use crate::run::{Tapes, simulate};

/// The simulator; needs nothing of this machine.
pub struct SimGround {
    /// What is replayed.
    pub tapes: Tapes,
    /// Runs at a time; the results do not depend on it.
    pub jobs: usize,
    /// Whether the user wants it to stop.
    pub interrupted: Box<dyn Fn() -> bool + Sync>,
}

impl Ground for SimGround {
    type Error = SimError;

    fn length(scenario: &Scenario) -> String {
        let (run, runs) = (&scenario.run, scenario.runs());
        if matches!(scenario.workload, Workload::Postmark(_)) {
            return format!("{runs} runs, each until its work is done");
        }
        // Enough latencies may have been measured before the window ends.
        let most = if scenario.workload.latencies().is_some() { "at most " } else { "" };
        let simulated_ns = (run.warmup_ms + run.window_ms) * MILLISECOND_NS;
        format!("{runs} runs of {most}{} of simulated time", units::duration(simulated_ns as f64))
    }

    fn check(&self, _: &Scenario) -> Result<(), SimError> {
        Ok(())
    }

    fn run(&self, scenario: Scenario, progress: &mut dyn Progress) -> Finished<SimError> {
        run(scenario, &self.tapes, self.jobs, &self.interrupted, progress)
    }
}

/// Simulates all runs of a scenario on `jobs` threads. Observations come in the order of the plan.
pub fn run(
    scenario: Scenario,
    tapes: &Tapes,
    jobs: usize,
    interrupted: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn Progress,
) -> Finished<SimError> {
    let plan = match scenario.plan() {
        Ok(plan) => plan,
        Err(bad) => return Finished::failed(scenario, bad.into()),
    };
    let mut results: Vec<Option<Observation>> = plan.iter().map(|_| None).collect();
    let error = work_through(&plan, tapes, jobs.max(1), interrupted, progress, &mut results);
    let mut observations: Vec<Observation> = results.into_iter().flatten().collect();
    keep_first_traces(&mut observations);
    Finished { scenario, observations, error }
}

fn work_through(
    plan: &[PlannedRun],
    tapes: &Tapes,
    jobs: usize,
    interrupted: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn Progress,
    results: &mut [Option<Observation>],
) -> Option<SimError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let asked_to_stop = || stop.load(Ordering::Relaxed) || interrupted();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(plan.len()) {
            let (sender, next, asked_to_stop) = (sender.clone(), &next, &asked_to_stop);
            scope.spawn(move || {
                loop {
                    // Relaxed suffices: only the number matters, and each is handed out once.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = plan.get(number) else { break };
                    let result = if asked_to_stop() {
                        Err(SimError::Interrupted)
                    } else {
                        simulate(run, tapes, asked_to_stop)
                    };
                    if sender.send((number, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        collect(plan, receiver, &stop, progress, results)
    })
}

/// Receives the results as they come. The first error stops the others.
fn collect(
    plan: &[PlannedRun],
    receiver: mpsc::Receiver<(usize, Result<Observation, SimError>)>,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
    results: &mut [Option<Observation>],
) -> Option<SimError> {
    let mut error = None;
    let mut done = 0;
    for (number, result) in receiver {
        match result {
            Ok(mut observation) => {
                done += 1;
                progress.ended(done, plan.len(), &observation);
                if observation.sweep.is_some() {
                    // A sweep has many runs and shows only their numbers.
                    observation.timelines.clear();
                    observation.distributions.remove(observation::LATENCIES);
                    observation.trace = None;
                    observation.tape = None;
                }
                results[number] = Some(observation);
            }
            Err(failure) => {
                stop.store(true, Ordering::Relaxed);
                error.get_or_insert(failure);
            }
        }
    }
    error
}

/// Traces, recordings and timelines are large: keep them for the first run of each condition only.
fn keep_first_traces(observations: &mut [Observation]) {
    let mut seen: Vec<String> = Vec::new();
    for observation in observations {
        if seen.contains(&observation.condition) {
            observation.trace = None;
            observation.tape = None;
            observation.timelines.clear();
        } else if observation.trace.is_some() {
            seen.push(observation.condition.clone());
        }
    }
}
