//! Files of rt-app as scenarios.

use std::fs;
use std::process::{Command, Output};

const AUDIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/audio.json");

fn reprieve(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reprieve")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_of_rt_app_runs_as_it_is_and_as_the_scenario_that_it_becomes() {
    let direct = reprieve(&["run", AUDIO, "--quiet"]);
    assert!(direct.status.success(), "{}", text(&direct.stderr));
    assert!(text(&direct.stdout).to_lowercase().contains("latency"), "{}", text(&direct.stdout));
    let shown = reprieve(&["show", AUDIO]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audio.toml");
    fs::write(&path, &shown.stdout).unwrap();
    let again = reprieve(&["run", path.to_str().unwrap(), "--quiet"]);
    assert_eq!(text(&again.stdout), text(&direct.stdout).replace(AUDIO, path.to_str().unwrap()));
}

#[test]
fn what_cannot_be_simulated_is_refused_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.json");
    fs::write(&path, r#"{"tasks": {"t": {"lock": "m", "run": 10, "unlock": "m"}}}"#).unwrap();
    let refused = reprieve(&["run", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("locks.json: tasks.t.lock: is not simulated: there are no mutexes"), "{said}");
}
