//! What every ground has in common: it tells how things go, and what a plan gave.

use std::time::{Duration, Instant};

use crate::observation::Observation;
use crate::scenario::Scenario;

/// Who is told how things go.
pub trait Progress {
    /// A stage of the preparation.
    fn preparing(&mut self, what: &str);
    /// Run `number` of `total` is at a stage: `3 of 20, overcommitted: boots`.
    fn running(&mut self, number: usize, total: usize, condition: &str, stage: &str);
    /// A run has ended.
    fn ended(&mut self, number: usize, total: usize, observation: &Observation);
    /// Something that the user should know.
    fn warning(&mut self, text: &str);
}

/// What a plan gave: the finished runs, and the error that ended it early.
#[derive(Debug)]
pub struct Finished<E> {
    /// The scenario as it was run.
    pub scenario: Scenario,
    /// All finished runs in the order of the plan.
    pub observations: Vec<Observation>,
    /// Why not all of them.
    pub error: Option<E>,
}

/// How long a plan will take, roughly, for a user who waits: from the time that finished runs took.
pub fn time_left(started: Instant, done: usize, total: usize) -> Option<Duration> {
    let left = total.checked_sub(done)? as u32;
    (done > 0).then(|| started.elapsed() / done as u32 * left)
}
