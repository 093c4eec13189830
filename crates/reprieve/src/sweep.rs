//! `reprieve sweep`: a scenario's space, on one machine or many.

mod show;
mod submit;
mod words;

use std::time::SystemTime;

use reprieve_linux::signals::Interrupt;
use reprieve_sim::ground::{Tapes, simulate};
use reprieve_sim::{SimError, VERSION};
use reprieve_study::scenario::PlannedRun;
use reprieve_study::{GroundKind, Observation};
use reprieve_sweep::merge::{self, Merged};
use reprieve_sweep::shard::{self, Runner};
use reprieve_sweep::status::Status;
use reprieve_sweep::{Plan, Shard, SweepError, plan};

use crate::cli::sweep::{MergeSweep, PlanSweep, RunSweep, StatusSweep, SweepVerb};
use crate::failure::Failure;
use crate::progress::Counted;
use crate::{catalog, grounds, output};

/// Runs the verb.
pub fn sweep(verb: &SweepVerb) -> Result<(), Failure> {
    match verb {
        SweepVerb::Plan(arguments) => plan(arguments),
        SweepVerb::Run(arguments) => run(arguments),
        SweepVerb::Status(arguments) => status(arguments),
        SweepVerb::Merge(arguments) => merge(arguments),
        SweepVerb::Show(arguments) => show::show(&Plan::open(&arguments.folder, VERSION)?, arguments),
        SweepVerb::Submit(arguments) => submit::submit(&Plan::open(&arguments.folder, VERSION)?, arguments),
    }
}

fn plan(arguments: &PlanSweep) -> Result<(), Failure> {
    let scenario = catalog::read(&arguments.scenario, Some(GroundKind::Sim), &arguments.assignments)?;
    let program = format!("reprieve {}", env!("CARGO_PKG_VERSION"));
    let points = scenario.space.as_ref().map_or(0, |space| space.size());
    let mut bar = Counted::new(points, "points", arguments.quiet);
    let interrupt = Interrupt::install()?;
    let plan = plan::write(&arguments.output, &scenario, &program, VERSION, &mut |done| {
        bar.at(done);
        unless(&interrupt)
    })?;
    drop(bar);
    output::print(&words::of_plan(&plan))
}

fn run(arguments: &RunSweep) -> Result<(), Failure> {
    let plan = Plan::open(&arguments.folder, VERSION)?;
    let jobs = match (arguments.jobs, arguments.shard) {
        (Some(jobs), _) => jobs.into(),
        (None, Some(_)) => 1,
        (None, None) => grounds::pcpus(),
    };
    let simulator = Simulator::new(Interrupt::install()?);
    let shard = arguments.shard.unwrap_or(Shard::ALL);
    let mut bar = None;
    let standing = shard::run(&plan, shard, jobs, &simulator, &mut |standing| {
        let new = || {
            if standing.damaged > 0 {
                output::say(&words::of_damaged(standing.damaged));
            }
            Counted::beginning_at(standing.before, standing.runs, "runs", arguments.quiet)
        };
        bar.get_or_insert_with(new).at(standing.before + standing.now);
    })?;
    drop(bar);
    output::print(&words::of_run(&plan, shard, standing))
}

fn status(arguments: &StatusSweep) -> Result<(), Failure> {
    let plan = Plan::open(&arguments.folder, VERSION)?;
    let status = Status::read(&plan, SystemTime::now(), &|| Ok(()))?;
    output::print(&if arguments.json { words::json(&status) } else { words::of_status(&plan, &status) })
}

fn merge(arguments: &MergeSweep) -> Result<(), Failure> {
    let plan = Plan::open(&arguments.folder, VERSION)?;
    let mut bar = Counted::new(plan.rows(), "rows", arguments.quiet);
    let interrupt = Interrupt::install()?;
    let merged = merge::merge(&plan, &mut |done| {
        bar.at(done);
        unless(&interrupt)
    })?;
    drop(bar);
    match &merged {
        Merged::Whole { files, rows, failed } => output::print(&words::of_table(files, *rows, *failed)),
        Merged::Missing { runs, first } => Err(Failure::Failed(words::of_missing(&plan, *runs, first))),
    }
}

/// Goes on unless the user stops it.
fn unless(interrupt: &Interrupt) -> Result<(), SweepError> {
    if interrupt.is_raised() { Err(SweepError::Interrupted) } else { Ok(()) }
}

/// The simulator, until the user stops it.
struct Simulator {
    tapes: Tapes,
    interrupt: Interrupt,
}

impl Simulator {
    fn new(interrupt: Interrupt) -> Simulator {
        Simulator { tapes: Tapes::new(), interrupt }
    }
}

impl Runner for Simulator {
    fn run(&self, run: &PlannedRun, stop: &(dyn Fn() -> bool + Sync)) -> Option<Result<Observation, String>> {
        match simulate(run, &self.tapes, &stop) {
            Err(SimError::Interrupted) => None,
            // Without the run's title: its result must not depend on the name of its condition.
            Err(SimError::Broken { broken, .. }) => Some(Err(broken)),
            done => Some(done.map_err(|error| error.to_string())),
        }
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.is_raised()
    }
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Failure {
        match error {
            SweepError::Bad(_) | SweepError::Refused { .. } => Failure::Usage(error.to_string()),
            SweepError::Io { .. } | SweepError::Differ { .. } | SweepError::Interrupted => {
                Failure::Failed(error.to_string())
            }
        }
    }
}
