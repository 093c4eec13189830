//! Runs of a scenario, and what they showed.

use std::path::Path;

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;
use reprieve_report::{figure, headline, html, terminal};
use reprieve_sim::{SimError, ground};
use reprieve_study::ground::Progress;
use reprieve_study::record::SCHEMA_VERSION;
use reprieve_study::scenario::{BadScenario, GroundKind, limits};
use reprieve_study::{Observation, Scenario, Study, metric, overrides, rt_app};

use crate::problem;
use crate::table::{Cells, Table};
use crate::wait::{Told, wait};

/// Lines of text are so wide, columns.
const WIDTH: usize = 100;

/// What runs showed.
#[pyclass(frozen, module = "reprieve._reprieve")]
pub struct Record(reprieve_study::Record);

#[pymethods]
impl Record {
    /// The findings, the most important one first.
    #[getter]
    fn findings(&self) -> Vec<String> {
        self.0.studies.iter().flat_map(headline::of).collect()
    }

    /// The record as the command writes it with --json.
    fn to_json(&self) -> String {
        self.0.compact().to_json()
    }

    /// The page with figures and tables.
    fn to_html(&self) -> String {
        html::render(&self.0.compact())
    }

    /// The figures as SVG.
    fn figures(&self) -> Vec<String> {
        self.0.studies.iter().flat_map(figure::all).map(|figure| figure.standalone()).collect()
    }

    /// What the command prints.
    #[pyo3(signature = (full=false))]
    fn text(&self, full: bool) -> String {
        terminal::render(&self.0, &options(full))
    }

    /// What the command prints of two records, `a` and `b`.
    #[pyo3(signature = (other, names=("a".to_string(), "b".to_string()), full=false))]
    fn compare(&self, other: &Record, names: (String, String), full: bool) -> String {
        terminal::render_compare(&self.0, &other.0, (&names.0, &names.1), &options(full))
    }

    /// A row for each run: the scenario, ground, condition, case and repetition, and a column for each metric that some run has.
    fn table(&self) -> PyResult<Table> {
        let runs: Vec<(&Study, &Observation)> = self
            .0
            .studies
            .iter()
            .flat_map(|study| study.observations.iter().map(move |run| (study, run)))
            .collect();
        let text = |of: &dyn Fn(&Study, &Observation) -> Option<String>| {
            Cells::Text(runs.iter().map(|(study, run)| of(study, run)).collect())
        };
        let mut columns = vec![
            ("scenario".to_string(), text(&|study, _| Some(study.scenario.name.clone()))),
            ("ground".to_string(), text(&|_, run| Some(run.provenance.ground.clone()))),
            ("condition".to_string(), text(&|_, run| Some(run.condition.clone()))),
            ("case".to_string(), text(&|_, run| run.case.clone())),
            (
                "repetition".to_string(),
                Cells::Whole(runs.iter().map(|(_, run)| Some(run.repetition.into())).collect()),
            ),
        ];
        for metric in metric::ALL
            .iter()
            .filter(|metric| runs.iter().any(|(_, run)| run.metrics.contains_key(metric.id)))
        {
            let cells = runs.iter().map(|(_, run)| run.metrics.get(metric.id).copied()).collect();
            columns.push((metric.id.to_string(), Cells::Number(cells)));
        }
        Table::of(columns)
    }
}

fn options(full: bool) -> terminal::Options {
    terminal::Options { colour: false, width: WIDTH, full }
}

/// Reads a scenario: a built-in name, the path of a file (it ends in .toml or .json, or has a separator), or the text itself (it has
/// lines). A .json file is rt-app's.
///
/// # Errors
/// It cannot be read or run.
pub fn scenario(py: Python<'_>, named: &str, assignments: &[String]) -> PyResult<Scenario> {
    let bad = |problem: String| problem::of_scenario(py, BadScenario::new("scenario", problem));
    let is_text = named.contains('\n');
    let text = if is_text {
        named.to_string()
    } else if named.ends_with(".toml") || named.ends_with(".json") || named.contains('/') {
        let about =
            std::fs::metadata(named).map_err(|error| PyOSError::new_err(format!("{named}: {error}")))?;
        if !about.is_file() {
            return Err(bad(format!("{named} is not a file")));
        }
        if about.len() > limits::FILE_BYTES {
            return Err(bad(format!("{} bytes are too many for a scenario", about.len())));
        }
        let text = std::fs::read_to_string(named)
            .map_err(|error| PyOSError::new_err(format!("{named}: {error}")))?;
        let path = Path::new(named);
        match path.extension().is_some_and(|ending| ending == "json") {
            true => rt_app::scenario(&path.file_stem().unwrap_or_default().to_string_lossy(), &text)
                .map_err(|bad| problem::of_scenario(py, bad))?,
            false => text,
        }
    } else {
        reprieve_catalog::text(named, "a .toml file").map_err(bad)?.to_string()
    };
    let beside = |other: &str| {
        let path = Path::new(named).with_file_name(format!("{other}.toml"));
        match !is_text && path.exists() {
            true => std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display())),
            false => reprieve_catalog::text(other, "a file beside this one").map(String::from),
        }
    };
    overrides::read_with(&text, Some(GroundKind::Sim), assignments, &beside)
        .map_err(|bad| problem::of_scenario(py, bad))
}

struct Counting<'a, 'b>(&'a Told<'b>, Vec<String>);

impl Progress for Counting<'_, '_> {
    fn preparing(&mut self, _: &str) {}
    fn running(&mut self, _: usize, _: usize, _: &str, _: &str) {}
    fn ended(&mut self, number: usize, total: usize, _: &Observation) {
        self.0.done(number as u64, total as u64);
    }
    fn warning(&mut self, text: &str) {
        self.1.push(text.into());
    }
}

/// Simulates a scenario. The same arguments give the same result on every machine.
#[pyfunction]
#[pyo3(signature = (named, assignments, jobs, progress=None))]
pub fn run(
    py: Python<'_>,
    named: &str,
    assignments: Vec<String>,
    jobs: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Record> {
    let scenario = scenario(py, named, &assignments)?;
    let finished = wait(py, progress.as_ref(), |told| {
        let mut counting = Counting(told, Vec::new());
        let stop = || told.is_stopped();
        ground::run(scenario, &ground::Tapes::new(), jobs, &stop, &mut counting)
    })?;
    match finished.error {
        None => {}
        Some(SimError::Interrupted) => return Err(PyKeyboardInterrupt::new_err("interrupted")),
        Some(SimError::Bad(bad)) => return Err(problem::of_scenario(py, bad)),
        Some(error) => return Err(problem::of_scenario(py, BadScenario::new("scenario", error.to_string()))),
    }
    let mut study = Study::new(finished.scenario, finished.observations, None);
    study.headline = headline::of(&study);
    let words = assignments.iter().map(|assignment| format!(" --set '{assignment}'"));
    Ok(Record(reprieve_study::Record {
        schema_version: SCHEMA_VERSION,
        program: format!("reprieve {} (Python)", env!("CARGO_PKG_VERSION")),
        command: format!("reprieve run {}{}", study.scenario.name, words.collect::<String>()),
        studies: vec![study],
    }))
}

/// Reads a record that `reprieve run --json` or [`Record::to_json`] wrote.
#[pyfunction]
pub fn load(py: Python<'_>, text: &str) -> PyResult<Record> {
    let read = py.detach(|| {
        reprieve_study::Record::from_json(text).map(|mut record| {
            // What a record says of itself is not trusted.
            record.studies.iter_mut().for_each(|study| study.headline = headline::of(study));
            record
        })
    });
    read.map(Record).map_err(|error| problem::of_scenario(py, BadScenario::new("record", error.to_string())))
}

/// Names and titles of the built-in scenarios that the simulator runs.
#[pyfunction]
pub fn scenarios() -> Vec<(String, String)> {
    let read = |(name, text): &(&str, &str)| {
        let others = |other: &str| reprieve_catalog::text(other, "another one").map(String::from);
        let scenario = overrides::read_with(text, Some(GroundKind::Sim), &[], &others).ok()?;
        Some((name.to_string(), scenario.title))
    };
    reprieve_catalog::BUILT_IN.iter().filter_map(read).collect()
}

/// The names of a scenario's conditions, in its order.
#[pyfunction]
pub fn conditions(py: Python<'_>, named: &str) -> PyResult<Vec<String>> {
    Ok(scenario(py, named, &[])?.conditions.into_keys().collect())
}

/// The text of a built-in scenario.
#[pyfunction]
pub fn text(py: Python<'_>, name: &str) -> PyResult<&'static str> {
    reprieve_catalog::text(name, "another one")
        .map_err(|problem| problem::of_scenario(py, BadScenario::new("scenario", problem)))
}
