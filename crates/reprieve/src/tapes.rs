//! Recordings of what a host did to vCPUs, as files: those that scenarios replay are read before anything runs, those of runs
//! are written at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reprieve_sim::ground::Tapes;
use reprieve_study::{Observation, Record, Scenario, Study, Tape, tape};

use crate::failure::Failure;
use crate::input;
use crate::output::Promised;

/// A scenario's file says where its recordings lie as seen from itself; a scenario that is built in, as seen from here.
pub fn resolve(scenario: &mut Scenario, named: &str) {
    let folder = Path::new(named).parent().filter(|_| named.contains('/'));
    let Some(folder) = folder else { return };
    for condition in scenario.conditions.values_mut().filter(|condition| !condition.replay.is_empty()) {
        condition.replay = folder.join(&condition.replay).to_string_lossy().into_owned();
    }
}

/// What these scenarios replay, checked against them.
pub fn read(scenarios: &[Scenario]) -> Result<Tapes, Failure> {
    let mut tapes = Tapes::new();
    for scenario in scenarios {
        for (name, condition) in scenario.chosen().filter(|(_, condition)| !condition.replay.is_empty()) {
            let path = &condition.replay;
            if !tapes.contains_key(path) {
                tapes.insert(path.clone(), Arc::new(read_one(Path::new(path))?));
            }
            scenario.under(name)?.check_tape(name, &tapes[path])?;
        }
    }
    Ok(tapes)
}

fn read_one(path: &Path) -> Result<Tape, Failure> {
    let text = input::read_text(path, tape::FILE_BYTES, "recording")?;
    Tape::from_json(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Makes sure that a folder for recordings is there, and can be written to.
pub fn promise(folder: &Path) -> Result<(), Failure> {
    let refused =
        |error: std::io::Error| Failure::Usage(format!("cannot write into {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(refused)?;
    Promised::open(&folder.join("recording.json")).map(drop)
}

/// Writes one file for each run that counts and of which it is known when vCPUs were off.
pub fn write(folder: &Path, record: &Record) -> Result<(), Failure> {
    let mut files: BTreeMap<PathBuf, Tape> = BTreeMap::new();
    for study in &record.studies {
        for run in study.observations.iter().filter(|run| run.standing.counts()) {
            let Some(tape) = &run.tape else { continue };
            let mut described = tape.clone();
            described.source = source(study, run);
            described.metrics.clone_from(&run.metrics);
            files.insert(folder.join(file_name(study, run)), described);
        }
    }
    if files.is_empty() {
        let problem = "no recordings: no run told when its vCPUs were kept from running (perf's switch records are needed)";
        return Err(Failure::Failed(problem.into()));
    }
    files.iter().try_for_each(|(path, tape)| Promised::open(path)?.write(tape.to_json().as_bytes()))
}

/// Scenario, case, condition and repetition. What a file's name should not have is left out.
fn file_name(study: &Study, run: &Observation) -> String {
    let case = run.case.iter().map(String::as_str);
    let parts: Vec<&str> =
        [study.scenario.name.as_str()].into_iter().chain(case).chain([run.condition.as_str()]).collect();
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let name: String = parts.join("-").chars().map(plain).collect();
    format!("{}-{}.json", name.trim_start_matches('.'), run.repetition)
}

fn source(study: &Study, run: &Observation) -> String {
    let provenance = &run.provenance;
    format!(
        "{}, {}, repetition {}; {}; guest kernel {}, host kernel {}",
        study.scenario.name,
        run.title(),
        run.repetition,
        provenance.ground,
        provenance.kernel,
        provenance.host_kernel
    )
}
