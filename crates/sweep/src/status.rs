//! How a sweep stands.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::found::{Found, FoundPart, Place};
use crate::part::Ended;
use crate::{Plan, Result};

/// A part that was written to within this time is taken for one that is being made: most runs take seconds. An attempt whose runs take
/// longer is told as ended until its next one is finished.
const SILENT: Duration = Duration::from_secs(300);
/// Different errors that are kept.
const MOST_ERRORS: usize = 100;

/// How a sweep stands.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Rows that its table will have.
    pub rows: u64,
    /// Different runs.
    pub runs: u64,
    /// Of them, the finished ones, those that failed included.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Errors of failed runs, and how many runs have each.
    pub errors: BTreeMap<String, u64>,
    /// Finished runs that are not in the plan.
    pub foreign: u64,
    /// Lines that are damaged.
    pub damaged: u64,
    /// Attempts that go on.
    pub running: Vec<FoundPart>,
    /// Attempts that ended before their shard was done.
    pub ended_early: u64,
    /// About how long the rest takes if attempts go on at the present rate.
    pub left: Option<Duration>,
}

impl Status {
    /// Reads it from the folder. `go_on` is asked now and then.
    ///
    /// # Errors
    /// That of `go_on`, or as of [`Found::read`].
    pub fn read(plan: &Plan, now: SystemTime, go_on: &dyn Fn() -> Result) -> Result<Status> {
        let found = Found::read(plan, &|_| true, &mut |_| go_on())?;
        let mut runs = plan.index()?;
        runs.dedup_by_key(|(id, _)| *id);
        let all = runs.len() as u64;
        let places: Vec<&Place> = runs.iter().filter_map(|(id, _)| found.place(*id)).collect();
        let done = places.len() as u64;
        let failed: Vec<&Place> = places.into_iter().filter(|place| place.has_failed).collect();
        let (running, ended): (Vec<_>, Vec<_>) =
            found.parts.iter().filter(|part| !part.is_whole).partition(|part| is_running(part, now));
        let running: Vec<FoundPart> = running.into_iter().cloned().collect();
        Ok(Status {
            rows: plan.rows(),
            runs: all,
            done,
            failed: failed.len() as u64,
            errors: errors(&found, &failed)?,
            foreign: found.places.len() as u64 - done,
            damaged: found.parts.iter().map(|part| part.damaged).sum(),
            left: left(&running, all - done),
            ended_early: ended.len() as u64,
            running,
        })
    }
}

/// The errors of these runs, and how many have each.
fn errors(found: &Found, failed: &[&Place]) -> Result<BTreeMap<String, u64>> {
    let mut errors = BTreeMap::new();
    for place in failed {
        if let Ended::Error(error) = found.outcome(place)?.ended
            && (errors.len() < MOST_ERRORS || errors.contains_key(&error))
        {
            *errors.entry(error).or_default() += 1;
        }
    }
    Ok(errors)
}

fn is_running(part: &FoundPart, now: SystemTime) -> bool {
    // The clock of a file server may be ahead.
    part.written.is_some_and(|written| now.duration_since(written).unwrap_or_default() < SILENT)
}

/// The time for so many runs at the rate of these attempts.
fn left(running: &[FoundPart], runs: u64) -> Option<Duration> {
    let rate = |part: &FoundPart| {
        let began = Duration::from_secs(part.attempt.as_ref()?.began_unix_s);
        let took = part.written?.duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_sub(began)?;
        Some(part.runs as f64 / took.as_secs_f64().max(1.0))
    };
    let rate: f64 = running.iter().filter_map(rate).sum();
    Duration::try_from_secs_f64(runs as f64 / rate).ok()
}
