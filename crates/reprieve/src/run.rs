//! `reprieve run`: scenarios in, comparison out.

use std::path::PathBuf;

use reprieve_report::{headline, html, perfetto, terminal};
use reprieve_study::record::SCHEMA_VERSION;
use reprieve_study::{GroundKind, Record, Scenario, Study, overrides};

use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::grounds::Ready;
use crate::output::{self, Promised};
use crate::progress::Shown;
use crate::{catalog, dry_run, grounds, tapes};

/// Runs the verb.
pub fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let scenarios = read_scenarios(arguments)?;
    if arguments.dry_run {
        tapes::read(&scenarios)?;
        return scenarios.iter().try_for_each(|scenario| output::print(&dry_run::render(scenario)));
    }
    let promise = |path: &Option<PathBuf>| path.as_deref().map(Promised::open).transpose();
    let (json, page, trace) =
        (promise(&arguments.json)?, promise(&arguments.html)?, promise(&arguments.trace)?);
    arguments.recordings.as_deref().map_or(Ok(()), |folder| tapes::promise(folder, &scenarios))?;
    let ready = grounds::prepare(scenarios, arguments.jobs)?;
    let (studies, failure) = run_all(ready, arguments.quiet)?;
    let record = Record {
        schema_version: SCHEMA_VERSION,
        program: format!("reprieve {}", env!("CARGO_PKG_VERSION")),
        command: command(arguments),
        studies,
    };
    // Each is tried whatever becomes of the others, so that no work is lost; the record first.
    let compact = record.compact();
    let tried = [
        failure.map_or(Ok(()), Err),
        json.map_or(Ok(()), |json| json.write(compact.to_json().as_bytes())),
        page.map_or(Ok(()), |page| page.write(html::render(&compact).as_bytes())),
        trace.map_or(Ok(()), |trace| trace.write(&encode_trace(&record))),
        arguments.recordings.as_deref().map_or(Ok(()), |folder| tapes::write(folder, &record)),
        output::print_made(&terminal::render(&record, &output::options(arguments.full))),
        if arguments.full { Ok(()) } else { output::print(&next(arguments, &record)) },
    ];
    output::first_failure(tried)
}

/// All scenarios, checked before any of them is run.
fn read_scenarios(arguments: &RunArguments) -> Result<Vec<Scenario>, Failure> {
    let ground = arguments.on.as_deref().map(ground).transpose()?;
    let mut assignments = arguments.assignments.clone();
    assignments.extend(arguments.repeat.map(|repeat| format!("run.repeat={repeat}")));
    assignments.extend(arguments.seed.map(|seed| format!("run.seed={seed}")));
    let read = |name: &String| {
        let mut scenario = catalog::read(name, ground, &assignments)?;
        if let Some(varied) = &arguments.vary {
            scenario = scenario.varied(varied)?;
        }
        tapes::resolve(&mut scenario, name);
        Ok(scenario)
    };
    arguments.scenarios.iter().map(read).collect()
}

/// The ground of that name.
fn ground(name: &str) -> Result<GroundKind, Failure> {
    let names = GroundKind::ALL.map(|ground| ground.to_string());
    let found = GroundKind::ALL.into_iter().find(|ground| ground.to_string() == name);
    found.ok_or_else(|| {
        let near = overrides::nearest(name, names.iter().map(String::as_str));
        let hint = near.map_or_else(
            || format!("there are {}", names.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        Failure::Usage(format!("there is no ground {name:?}; {hint}"))
    })
}

/// Runs scenario after scenario. What has finished is kept when a later one fails; only a failure before the
/// first result leaves nothing to show.
fn run_all(ready: Vec<Ready>, quiet: bool) -> Result<(Vec<Study>, Option<Failure>), Failure> {
    let mut studies: Vec<Study> = Vec::new();
    for one in ready {
        let mut shown = Shown::new(one.name(), quiet);
        let finished = one.run(&mut shown);
        drop(shown);
        let ended_early = finished.error.as_ref().map(ToString::to_string);
        let mut study = Study::new(finished.scenario, finished.observations, ended_early);
        study.headline = headline::of(&study);
        studies.push(study);
        if let Some(failure) = finished.error {
            return if studies.iter().all(|study| study.observations.is_empty()) {
                Err(failure)
            } else {
                Ok((studies, Some(failure)))
            };
        }
    }
    Ok((studies, None))
}

/// The command that makes the record again, without the names of its outputs.
fn command(arguments: &RunArguments) -> String {
    let mut words = vec!["reprieve run".to_string(), arguments.scenarios.join(" ")];
    words.extend(arguments.on.iter().map(|ground| format!("--on {ground}")));
    words.extend(arguments.assignments.iter().map(|assignment| format!("--set '{assignment}'")));
    words.extend(arguments.vary.iter().map(|varied| format!("--vary '{varied}'")));
    words.extend(arguments.repeat.map(|repeat| format!("--repeat {repeat}")));
    words.extend(arguments.seed.map(|seed| format!("--seed {seed}")));
    words.join(" ")
}

/// Where the rest is, and what to do next.
fn next(arguments: &RunArguments, record: &Record) -> String {
    let full = match &arguments.json {
        Some(path) => format!("reprieve report {} --full", path.display()),
        None => "the same command with --full".into(),
    };
    let mut text = terminal::render_short(record, &output::options(false));
    text += &format!("All metrics, with ranges and p-values: {full}\n");
    let has_guests = |name: &&str| catalog::read(name, Some(GroundKind::Vm), &[]).is_ok();
    let names: Vec<&str> = record
        .studies
        .iter()
        .filter(|study| study.is_simulated())
        .map(|study| study.scenario.name.as_str())
        .filter(has_guests)
        .collect();
    if !names.is_empty() {
        text += &format!("The same on real guests: reprieve run {} --on vm\n", names.join(" "));
    }
    text
}

/// The first run of each condition.
fn encode_trace(record: &Record) -> Vec<u8> {
    let mut runs = Vec::new();
    for study in &record.studies {
        for (name, _) in study.scenario.chosen() {
            let first = study.runs_of(name).find_map(|observation| observation.trace.as_ref());
            runs.extend(first.map(|trace| (format!("{} {name}", study.scenario.name), trace)));
        }
    }
    let named: Vec<_> = runs.iter().map(|(name, trace)| (name.as_str(), *trace)).collect();
    perfetto::encode(&named)
}
