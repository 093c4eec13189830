//! Recordings of what a host did to vCPUs, as files: those that scenarios replay are read before anything runs, those of runs
//! are written at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reprieve_linux::switches::SwitchRecorder;
use reprieve_linux::threads;
use reprieve_sim::ground::Tapes;
use reprieve_study::{GroundKind, Observation, Record, Scenario, Study, Tape, tape};

use crate::failure::Failure;
use crate::input;
use crate::output::{self, Promised};

/// Files that are replayed at a time, together. Bytes.
const ALL_BYTES: u64 = 256 << 20;
/// Letters of a file's name before its number.
const NAME_LETTERS: usize = 200;

/// A scenario's file says where its recordings lie as seen from itself; a scenario that is built in, as seen from the current
/// directory.
pub fn resolve(scenario: &mut Scenario, named: &str) {
    let folder = Path::new(named).parent().filter(|_| named.contains('/'));
    let Some(folder) = folder else { return };
    for condition in scenario.conditions.values_mut().filter(|condition| !condition.replay.is_empty()) {
        condition.replay = folder.join(&condition.replay).to_string_lossy().into_owned();
    }
}

/// What these scenarios replay, checked against each of their runs.
pub fn read(scenarios: &[Scenario]) -> Result<Tapes, Failure> {
    let (mut tapes, mut bytes) = (Tapes::new(), 0);
    for scenario in scenarios {
        if scenario.conditions.values().all(|condition| condition.replay.is_empty()) {
            continue;
        }
        for run in scenario.plan()?.iter().filter(|run| run.repetition == 0) {
            let path = &run.scenario.conditions[&run.condition].replay;
            if path.is_empty() {
                continue;
            }
            if !tapes.contains_key(path) {
                tapes.insert(path.clone(), Arc::new(read_one(Path::new(path), &mut bytes)?));
            }
            run.scenario.check_tape(&run.condition, &tapes[path])?;
        }
    }
    Ok(tapes)
}

fn read_one(path: &Path, bytes: &mut u64) -> Result<Tape, Failure> {
    let bad = |problem: String| Failure::Usage(format!("{}: {problem}", path.display()));
    let text = input::read_text(path, tape::FILE_BYTES, "recording")?;
    *bytes += text.len() as u64;
    if *bytes > ALL_BYTES {
        return Err(bad(format!(
            "with it, recordings of more than {} MiB would be replayed",
            ALL_BYTES >> 20
        )));
    }
    Tape::from_json(&text).map_err(|error| bad(error.to_string()))
}

/// Makes sure, before anything runs, that recordings can be made, and written into that folder.
pub fn promise(folder: &Path, scenarios: &[Scenario]) -> Result<(), Failure> {
    if let Some(other) = scenarios.iter().find(|one| !matches!(one.ground, GroundKind::Sim | GroundKind::Vm))
    {
        let problem =
            format!("--recordings: {} runs on {}, of which there are none", other.name, other.ground);
        return Err(Failure::Usage(problem));
    }
    if scenarios.iter().any(|one| one.ground == GroundKind::Vm) {
        permit()?;
    }
    let refused =
        |error: std::io::Error| Failure::Usage(format!("cannot write into {}: {error}", folder.display()));
    // It is made when there is something to put into it.
    let there = if folder.exists() { Some(folder) } else { folder.parent() };
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(there).map(drop).map_err(refused)
}

/// Whether the kernel tells when threads are switched.
///
/// # Errors
/// It does not.
pub fn permit() -> Result<(), Failure> {
    let refused = |error| {
        Failure::Missing(format!(
            "recording when threads run needs perf's switch records: {error}; as root: sysctl kernel.perf_event_paranoid=2"
        ))
    };
    SwitchRecorder::open(&[threads::own_tid()], 1).map(drop).map_err(refused)
}

/// Writes one file for each run that counts and of which it is known when vCPUs were off. Each is tried.
pub fn write(folder: &Path, record: &Record) -> Result<(), Failure> {
    let mut files: BTreeMap<PathBuf, Tape> = BTreeMap::new();
    for study in &record.studies {
        for run in study.observations.iter().filter(|run| run.standing.counts()) {
            let Some(tape) = &run.tape else { continue };
            let name = file_name(study, run);
            let mut path = folder.join(format!("{name}.json"));
            // Two names can be alike once letters are left out.
            for number in 2.. {
                if !files.contains_key(&path) {
                    break;
                }
                path = folder.join(format!("{name}-{number}.json"));
            }
            files.insert(path, tape.clone().described(&source(study, run), &run.metrics));
        }
    }
    if files.is_empty() {
        return Ok(());
    }
    let refused = |error| Failure::Failed(format!("cannot make {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(refused)?;
    output::first_failure(
        files.iter().map(|(path, tape)| Promised::open(path)?.write(tape.to_json().as_bytes())),
    )
}

/// Scenario, case, condition and repetition. Letters that a file's name should not have become lines.
fn file_name(study: &Study, run: &Observation) -> String {
    let case = run.case.iter().map(String::as_str);
    let parts: Vec<&str> =
        [study.scenario.name.as_str()].into_iter().chain(case).chain([run.condition.as_str()]).collect();
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let name: String = parts.join("-").chars().map(plain).take(NAME_LETTERS).collect();
    format!("{}-{}", name.trim_start_matches('.'), run.repetition)
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
