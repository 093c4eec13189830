//! `reprieve run`: scenarios in, comparison out.

use std::path::PathBuf;
use std::sync::Arc;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::Warden;
use reprieve_report::{html, perfetto, terminal};
use reprieve_study::record::SCHEMA_VERSION;
use reprieve_study::{Ground as GroundName, Record, Scenario, Study};
use reprieve_vm::ground::check_machine;
use reprieve_vm::image::Cache;
use reprieve_vm::{Ground, HogCommand, Host};

use crate::catalog;
use crate::cli::RunArguments;
use crate::failure::Failure;
use crate::output::{self, Promised};
use crate::progress::Shown;

/// Runs the verb.
pub fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let scenarios = read_scenarios(arguments)?;
    if arguments.dry_run {
        return scenarios.iter().try_for_each(|scenario| output::print(&plan(scenario)));
    }
    let promise = |path: &Option<PathBuf>| path.as_deref().map(Promised::open).transpose();
    let (json, page, trace) =
        (promise(&arguments.json)?, promise(&arguments.html)?, promise(&arguments.trace)?);
    let host = host()?;
    scenarios.iter().try_for_each(|scenario| check_machine(scenario, &host.proc_root))?;
    let cache = Cache::new(Cache::default_dir(|name| std::env::var_os(name))?)?;
    let (studies, failure) = run_all(scenarios, &host, &cache)?;
    let record = Record {
        schema_version: SCHEMA_VERSION,
        program: format!("reprieve {}", env!("CARGO_PKG_VERSION")),
        command: command(arguments),
        studies,
    };
    // The record first: whatever fails after it, the work is not lost.
    let compact = record.compact();
    if let Some(json) = json {
        json.write(compact.to_json().as_bytes())?;
    }
    if let Some(page) = page {
        page.write(html::render(&compact).as_bytes())?;
    }
    if let Some(trace) = trace {
        trace.write(&encode_trace(&record))?;
    }
    output::print(&terminal::render(&record, &output::options()))?;
    failure.map_or(Ok(()), Err)
}

/// All scenarios, checked before any of them is run.
fn read_scenarios(arguments: &RunArguments) -> Result<Vec<Scenario>, Failure> {
    if let Some(ground) = &arguments.on
        && *ground != GroundName::Vm.to_string()
    {
        return Err(Failure::Usage(format!("there is no ground {ground:?}; this version has vm")));
    }
    let mut assignments = arguments.assignments.clone();
    assignments.extend(arguments.repeat.map(|repeat| format!("run.repeat={repeat}")));
    assignments.extend(arguments.seed.map(|seed| format!("run.seed={seed}")));
    arguments.scenarios.iter().map(|name| catalog::read(name, &assignments)).collect()
}

/// What this process hands to the ground.
pub fn host() -> Result<Host, Failure> {
    let exe =
        std::env::current_exe().map_err(|error| Failure::Failed(format!("finding this program: {error}")))?;
    // First: from here on a polite end takes the polite way.
    let interrupt = Interrupt::install()?;
    let warden = Arc::new(Warden::spawn(&exe, &["warden"])?);
    let hog = HogCommand { exe, args: vec!["hog".into()] };
    Ok(Host { proc_root: ProcRoot::default(), warden, interrupt, hog })
}

/// Runs scenario after scenario. What has finished is kept when a later one fails; only a failure before the
/// first result leaves nothing to show.
fn run_all(
    scenarios: Vec<Scenario>,
    host: &Host,
    cache: &Cache,
) -> Result<(Vec<Study>, Option<Failure>), Failure> {
    let mut studies = Vec::new();
    for scenario in scenarios {
        let mut shown = Shown::new(&scenario.name);
        let ground = match Ground::prepare(scenario, host.clone(), cache, &mut shown) {
            Ok(ground) => ground,
            Err(error) if studies.is_empty() => return Err(error.into()),
            Err(error) => return Ok((studies, Some(error.into()))),
        };
        let finished = ground.run(&mut shown);
        drop(shown);
        let ended_early = finished.error.as_ref().map(ToString::to_string);
        studies.push(Study::new(finished.scenario, finished.observations, ended_early));
        if let Some(error) = finished.error {
            let failure = Failure::from(error);
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
    words.extend(arguments.repeat.map(|repeat| format!("--repeat {repeat}")));
    words.extend(arguments.seed.map(|seed| format!("--seed {seed}")));
    words.join(" ")
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

/// What a dry run shows.
fn plan(scenario: &Scenario) -> String {
    let (run, guest) = (&scenario.run, &scenario.guest);
    let mut text = format!("{}: {}\n", scenario.name, scenario.title);
    text.push_str(&format!(
        "  ground {}, guest with {} vCPUs and {} MiB, {} repetitions of each condition, seed {}\n",
        scenario.ground, guest.vcpus, guest.memory_mib, run.repeat, run.seed
    ));
    for (name, condition) in scenario.chosen() {
        text.push_str(&format!("  {name}: {}\n", condition.label));
    }
    let runs = u64::from(run.repeat) * scenario.chosen().count() as u64;
    // A guest boots in about 4 s under emulation; a workload of fixed size takes its own time.
    let seconds = runs * ((run.warmup_ms + run.window_ms) / 1000 + 5);
    text.push_str(&format!("  {runs} runs, about {seconds} s\n"));
    text
}
