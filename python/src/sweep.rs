//! Sweeps: the same folder as the command's, planned, run in shards and merged from Python.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use reprieve_sim::ground::{Tapes, simulate};
use reprieve_sim::{SimError, VERSION};
use reprieve_study::Observation;
use reprieve_study::scenario::PlannedRun;
use reprieve_sweep::part::Ended;
use reprieve_sweep::plan::Entry;
use reprieve_sweep::shard::Runner;
use reprieve_sweep::status::Status;
use reprieve_sweep::table::{Cell, Columns, Kind, Row};
use reprieve_sweep::{Plan, Shard, SweepError, merge as merging, plan as planning, rows, shard};

use crate::table::{Cells, Table};
use crate::wait::{Told, wait};
use crate::{problem, record};

/// Writes down all runs of a scenario's space. Returns the numbers of rows and of different runs.
#[pyfunction]
#[pyo3(signature = (named, assignments, folder, progress=None))]
pub fn plan(
    py: Python<'_>,
    named: &str,
    assignments: Vec<String>,
    folder: PathBuf,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(u64, u64)> {
    let scenario = record::scenario(py, named, &assignments)?;
    let points = scenario.space.as_ref().map_or(0, |space| space.size());
    let program = format!("reprieve {}", env!("CARGO_PKG_VERSION"));
    let planned = wait(py, progress.as_ref(), |told| {
        planning::write(&folder, &scenario, &program, VERSION, &mut |done| {
            told.done(done, points);
            unless(told)
        })
    })?;
    let plan = planned.map_err(|error| problem::of_sweep(py, error))?;
    Ok((plan.rows(), plan.runs()))
}

fn open(py: Python<'_>, folder: &PathBuf) -> PyResult<Plan> {
    Plan::open(folder, VERSION).map_err(|error| problem::of_sweep(py, error))
}

/// The simulator, until the work is to end.
struct Simulator<'a, 'b> {
    tapes: Tapes,
    told: &'a Told<'b>,
}

impl Runner for Simulator<'_, '_> {
    fn run(&self, run: &PlannedRun, stop: &(dyn Fn() -> bool + Sync)) -> Option<Result<Observation, String>> {
        match simulate(run, &self.tapes, &stop) {
            Err(SimError::Interrupted) => None,
            // Without the run's title: its result must not depend on the name of its condition.
            Err(SimError::Broken { broken, .. }) => Some(Err(broken)),
            done => Some(done.map_err(|error| error.to_string())),
        }
    }

    fn is_stopped(&self) -> bool {
        self.told.is_stopped()
    }
}

/// Does what is left of a shard, such as "3/10". Returns its numbers of runs, and of those that failed now.
#[pyfunction]
#[pyo3(signature = (folder, shard, jobs, progress=None))]
pub fn run_shard(
    py: Python<'_>,
    folder: PathBuf,
    shard: &str,
    jobs: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(u64, u64)> {
    let plan = open(py, &folder)?;
    let of: Shard = shard.parse().map_err(problem::SweepError::new_err::<String>)?;
    let ran = wait(py, progress.as_ref(), |told| {
        let simulator = Simulator { tapes: Tapes::new(), told };
        shard::run(&plan, of, jobs, &simulator, &mut |standing| {
            told.done(standing.before + standing.now, standing.runs);
        })
    })?;
    match ran {
        Ok(standing) => Ok((standing.runs, standing.failed)),
        Err(SweepError::Interrupted) => {
            Err(PyKeyboardInterrupt::new_err(SweepError::Interrupted.to_string()))
        }
        Err(error) => Err(problem::of_sweep(py, error)),
    }
}

/// How a sweep stands: numbers of rows, runs, done and failed ones.
#[pyfunction]
pub fn standing(py: Python<'_>, folder: PathBuf) -> PyResult<BTreeMap<&'static str, u64>> {
    let plan = open(py, &folder)?;
    let status = wait(py, None, |told| Status::read(&plan, SystemTime::now(), &|| unless(told)))?;
    let status = status.map_err(|error| problem::of_sweep(py, error))?;
    Ok(BTreeMap::from([
        ("rows", status.rows),
        ("runs", status.runs),
        ("done", status.done),
        ("failed", status.failed),
    ]))
}

/// Makes the tables. Returns their paths.
#[pyfunction]
pub fn merge(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<PathBuf>> {
    let plan = open(py, &folder)?;
    let merged = wait(py, None, |told| merging::merge(&plan, &mut |_| unless(told)))?;
    match merged.map_err(|error| problem::of_sweep(py, error))? {
        merging::Merged::Whole { files, .. } => Ok(files),
        merging::Merged::Missing { runs, .. } => {
            Err(problem::SweepError::new_err(format!("{runs} of {} runs are missing", plan.runs())))
        }
    }
}

/// The table of all finished rows, with the same columns as the files that [`merge`] makes.
#[pyfunction]
pub fn table(py: Python<'_>, folder: PathBuf) -> PyResult<Table> {
    let plan = open(py, &folder)?;
    let made = wait(py, None, |told| columns(&plan, told))?;
    Table::of(made.map_err(|error| problem::of_sweep(py, error))?)
}

/// Goes on unless the work is to end.
fn unless(told: &Told<'_>) -> Result<(), SweepError> {
    if told.is_stopped() { Err(SweepError::Interrupted) } else { Ok(()) }
}

fn columns(plan: &Plan, told: &Told<'_>) -> Result<Vec<(String, Cells)>, SweepError> {
    let mut finished: Vec<(Entry, Ended)> = Vec::new();
    rows::each(plan, &|| unless(told), &mut |entry, ended| finished.push((entry.clone(), ended.clone())))?;
    let metrics = finished.iter().filter_map(|(_, ended)| match ended {
        Ended::Result(values) => Some(values.metrics.keys().map(String::as_str)),
        Ended::Error(_) => None,
    });
    let columns = Columns::of(plan, &metrics.flatten().collect::<BTreeSet<_>>());
    let new = |kind: Kind| match kind {
        Kind::Text => Cells::Text(Vec::new()),
        Kind::Whole => Cells::Whole(Vec::new()),
        Kind::Number => Cells::Number(Vec::new()),
        Kind::Bool => Cells::Bool(Vec::new()),
    };
    let mut made: Vec<(String, Cells)> =
        columns.all.iter().map(|column| (column.name.clone(), new(column.kind))).collect();
    for (entry, ended) in &finished {
        let mut all = made.iter_mut();
        Row { plan, entry, ended }.cells(&columns, |_, cell| {
            let (_, cells) = all.next().expect("a cell for each column");
            push(cells, cell);
        });
    }
    Ok(made)
}

fn push(cells: &mut Cells, cell: Cell<'_>) {
    match cells {
        Cells::Text(cells) => cells.push(match cell {
            Cell::Text(text) => Some(text.into()),
            _ => None,
        }),
        Cells::Whole(cells) => cells.push(match cell {
            Cell::Whole(number) => Some(number),
            _ => None,
        }),
        Cells::Number(cells) => cells.push(match cell {
            Cell::Number(number) => Some(number),
            _ => None,
        }),
        Cells::Bool(cells) => cells.push(match cell {
            Cell::Bool(is) => Some(is),
            _ => None,
        }),
    }
}
