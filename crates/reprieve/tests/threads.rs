//! The ground of real threads by the real command, with programs that stand in for those of the peers: the table comes
//! out, and whatever way the command ends no program is left.

#[path = "../../threads/tests/support/mod.rs"]
mod stubs;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reprieve_study::{Record, overrides};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A scenario whose conditions are these stand-ins; the first run of its plan is of `first`.
fn scenario(folder: &TempDir, schemes: &[&str], first: &str) -> PathBuf {
    let cpu = reprieve_linux::proc::allowed_cpus().unwrap()[0];
    let text = |seed: u32| {
        let mut text = format!(
            "name = 'stubs'\ntitle = 'stand-ins'\nground = 'threads'\n\
             run = {{ repeat = 1, seed = {seed}, foreign_cpu_limit_percent = 100 }}\n\
             workload = {{ kind = 'delete-free', scheme = 'one', reader_cpus = [{cpu}], writer_cpus = [{cpu}] }}\n"
        );
        for scheme in schemes {
            text += &format!("[conditions.{scheme}]\nset = {{ 'workload.scheme' = '{scheme}' }}\n");
        }
        text
    };
    let begins =
        |text: &String| overrides::read(text, None, &[]).unwrap().plan().unwrap()[0].condition == first;
    let path = folder.path().join("stubs.toml");
    fs::write(&path, (1..).map(text).find(begins).unwrap()).unwrap();
    path
}

fn start(scenario: &Path, record: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
    command.arg("run").arg(scenario).arg("--json").arg(record).env("REPRIEVE_PEERS", stubs::peers());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The id of the sleeping program that the command has started, when it has.
fn sleeper(command: &Child) -> String {
    let since = Instant::now();
    loop {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
            if stat.contains(" (sleep) ") && parent == Some(command.id().to_string().as_str()) {
                return entry.file_name().into_string().unwrap();
            }
        }
        assert!(since.elapsed() < PATIENCE, "no program was started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_gone(pid: &str) {
    let since = Instant::now();
    while stubs::is_alive(pid) {
        assert!(since.elapsed() < PATIENCE, "the program {pid} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_conditions_stand_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    let output = start(&scenario(&folder, &["one", "two"], "one"), &record).wait_with_output().unwrap();
    let (said, shown) =
        (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert!(output.status.success(), "{said}");
    assert!(said.contains("run 2 of 2, two, median delay 2.00 us"), "{said}");
    assert!(shown.contains("Side by side, ratios to one") && !shown.contains(" against "), "{shown}");
    let study = &Record::from_json(&fs::read_to_string(record).unwrap()).unwrap().studies[0];
    assert!(study.observations.len() == 2 && !study.is_simulated());
}

#[test]
fn an_interrupt_ends_the_program_and_keeps_what_had_finished() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    let command = start(&scenario(&folder, &["one", "sleeps"], "one"), &record);
    let pid = sleeper(&command);
    kill_process(Pid::from_child(&command), Signal::INT).unwrap();
    let output = command.wait_with_output().unwrap();
    assert!(!stubs::is_alive(&pid), "it was waited for");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().ends_with("reprieve: interrupted\n"));
    let study = &Record::from_json(&fs::read_to_string(record).unwrap()).unwrap().studies[0];
    assert_eq!((study.observations.len(), study.ended_early.as_deref()), (1, Some("interrupted")));
}

#[test]
fn a_killed_command_takes_its_program_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = start(&scenario(&folder, &["sleeps"], "sleeps"), &folder.path().join("record.json"));
    let pid = sleeper(&command);
    command.kill().unwrap();
    command.wait().unwrap();
    assert_gone(&pid);
}

#[test]
fn a_failing_program_fails_the_command_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    for (scheme, code, words) in [
        (
            "fails",
            1,
            "reprieve: fails: its own check of the freed memory failed: reader 3 met a freed node\n",
        ),
        ("lacks", 69, "reprieve: something that lacks needs is missing: this kernel has no membarrier\n"),
        ("hepled", 69, "did you mean helped? or build the peers' programs with: make peers\n"),
    ] {
        let mut command = start(&scenario(&folder, &[scheme], scheme), &folder.path().join("record.json"));
        let mut said = String::new();
        command.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(command.wait().unwrap().code(), Some(code), "{said}");
        assert!(said.ends_with(words), "{said}");
    }
}
