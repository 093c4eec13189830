//! Runs a shard of a sweep in this process: those of its runs that no part has yet.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use reprieve_study::Observation;
use reprieve_study::scenario::PlannedRun;
use reprieve_study::scenario::space::expand::Expander;
use serde::{Deserialize, Serialize};

use crate::found::Found;
use crate::part::{self, Outcome, Part};
use crate::{Id, Plan, Result, SweepError};

/// The largest number of shards.
pub const MOST_SHARDS: u32 = 1_000_000;
/// Finished runs that wait to be written.
const WAITING: usize = 256;

/// One of several shards: `3/10`. Each has as many runs as any other, give or take one, spread over the whole space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Shard {
    /// Which, from 1.
    pub number: u32,
    /// Of how many.
    pub of: u32,
}

impl Shard {
    /// All of it.
    pub const ALL: Shard = Shard { number: 1, of: 1 };

    /// `None` unless the number is within 1 to `of`.
    pub fn new(number: u32, of: u32) -> Option<Shard> {
        ((1..=of).contains(&number) && of <= MOST_SHARDS).then_some(Shard { number, of })
    }

    /// Whether it has the run of that rank among all different ones, by ID.
    fn has(self, rank: usize) -> bool {
        rank % self.of as usize == self.number as usize - 1
    }

    /// Whether a part of that name can have runs of this shard of a plan.
    fn may_have(self, path: &Path, plan: &Plan) -> bool {
        part::shard_in(path, plan.mark())
            .is_none_or(|other| other.of != self.of || other.number == self.number)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parsed =
            text.split_once('/').and_then(|(number, of)| Shard::new(number.parse().ok()?, of.parse().ok()?));
        parsed.ok_or_else(|| format!("{text:?} is no shard; write it as 3/10, from 1/10 to 10/10"))
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

/// What runs a run. An error is an error of the run, and would happen again; `None` is no result, because the user stopped it.
pub trait Runner: Sync {
    /// Runs it.
    fn run(&self, run: &PlannedRun, stop: &(dyn Fn() -> bool + Sync)) -> Option<Result<Observation, String>>;

    /// Whether the user wants it to stop.
    fn is_stopped(&self) -> bool;
}

/// How a shard stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Runs of the shard.
    pub runs: u64,
    /// Of them, those that were finished before.
    pub before: u64,
    /// Those that were finished now.
    pub now: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Lines of earlier attempts that are damaged; their runs are done again.
    pub damaged: u64,
}

/// Runs what is left of a shard, so many runs at a time. `tell` is told how it stands, first of all before anything is run.
///
/// # Errors
/// The folder cannot be used, or the user stopped it. What has finished is kept.
pub fn run(
    plan: &Plan,
    shard: Shard,
    jobs: usize,
    runner: &dyn Runner,
    tell: &mut dyn FnMut(Standing),
) -> Result<Standing> {
    let found = Found::read(plan, &|path| shard.may_have(path, plan), &mut |_| Ok(()))?;
    let (runs, mut standing) = left(plan, shard, &found)?;
    standing.damaged = found.parts.iter().map(|part| part.damaged).sum();
    drop(found);
    tell(standing);
    if runs.is_empty() {
        return Ok(standing);
    }
    let mut part = Part::begin(plan, shard)?;
    let expander = Expander::new(plan.scenario())?;
    let shared = Shared {
        plan,
        expander: &expander,
        runs: &runs,
        runner,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    };
    let worked = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING);
        for _ in 0..jobs.clamp(1, runs.len()) {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || shared.work(|done| sender.send(done).is_ok()));
        }
        drop(sender);
        let written = write(receiver, &mut part, &mut standing, tell);
        shared.stop.store(true, Ordering::Relaxed);
        written
    });
    worked?;
    if standing.before + standing.now < standing.runs {
        part.keep()?;
        return Err(SweepError::Interrupted);
    }
    part.end()?;
    Ok(standing)
}

/// The runs of the shard that are not finished, each with the place of its line in the plan, and how the shard stands. They are in the
/// order of their IDs, so what is done first is a sample of the whole space.
fn left(plan: &Plan, shard: Shard, found: &Found) -> Result<(Vec<(Id, u64)>, Standing)> {
    let mut runs = plan.index()?;
    runs.dedup_by_key(|(id, _)| *id);
    let mut rank = 0;
    runs.retain(|_| {
        rank += 1;
        shard.has(rank - 1)
    });
    let all = runs.len() as u64;
    runs.retain(|(id, _)| found.place(*id).is_none());
    let standing = Standing { runs: all, before: all - runs.len() as u64, ..Standing::default() };
    Ok((runs, standing))
}

/// Writes outcomes as they come.
fn write(
    receiver: Receiver<Result<Outcome>>,
    part: &mut Part,
    standing: &mut Standing,
    tell: &mut dyn FnMut(Standing),
) -> Result {
    for outcome in receiver {
        let outcome = outcome?;
        part.push(&outcome)?;
        standing.now += 1;
        standing.failed += u64::from(matches!(outcome.ended, part::Ended::Error(_)));
        tell(*standing);
    }
    Ok(())
}

/// What the threads share.
struct Shared<'a> {
    plan: &'a Plan,
    expander: &'a Expander<'a>,
    runs: &'a [(Id, u64)],
    runner: &'a dyn Runner,
    next: AtomicUsize,
    stop: AtomicBool,
}

impl Shared<'_> {
    /// Takes runs until none is left. `send` gives a result away, and says whether it is still wanted.
    fn work(&self, send: impl Fn(Result<Outcome>) -> bool) {
        let mut entries = match self.plan.entries() {
            Ok(entries) => entries,
            Err(error) => {
                send(Err(error));
                return;
            }
        };
        let stop = || self.stop.load(Ordering::Relaxed) || self.runner.is_stopped();
        while !stop() {
            // Relaxed suffices: only the number matters, and each is handed out once.
            let Some(place) = self.runs.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let outcome = match entries.at(*place).and_then(|entry| self.plan.expand(self.expander, &entry)) {
                Ok(run) => match self.observe(&run, &stop) {
                    Some(observed) => Ok(Outcome::of(place.0, observed)),
                    None => break,
                },
                Err(error) => Err(error),
            };
            if !send(outcome) {
                break;
            }
        }
    }

    /// A run that panics has failed, and no other with it.
    fn observe(
        &self,
        run: &PlannedRun,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Option<Result<Observation, String>> {
        let observed = catch_unwind(AssertUnwindSafe(|| self.runner.run(run, stop)));
        observed.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Some(Err(format!("the simulator is wrong, please report it: {}", text.unwrap_or("it panicked"))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_within_their_number() {
        assert_eq!("3/10".parse(), Ok(Shard { number: 3, of: 10 }));
        assert_eq!("3/10".parse::<Shard>().unwrap().to_string(), "3/10");
        for bad in ["0/3", "4/3", "3", "a/b", "1/1000001", "-1/3"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn all_shards_together_have_each_run_once() {
        for of in 1..8 {
            for rank in 0..50 {
                let having = (1..=of).filter(|number| Shard::new(*number, of).unwrap().has(rank)).count();
                assert_eq!(having, 1);
            }
        }
    }
}
