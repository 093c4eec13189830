//! The default ground needs nothing of the machine but the program, and gives the same again.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use reprieve_study::{Record, Tape};
use rustix::process::{Pid, Signal, kill_process};

/// A few short runs.
const SHORT: [&str; 7] = [
    "run",
    "rcu-conformance",
    "--set=run.conditions=[\"baseline\", \"quota-20-100\"]",
    "--set=run.window_ms=500",
    "--set=run.warmup_ms=100",
    "--repeat",
    "2",
];

/// The program without any environment: no PATH, no HOME, no cache.
fn reprieve(more: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_reprieve")).args(SHORT).args(more).env_clear().output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn a_simulated_run_needs_only_the_program_and_gives_the_same_whatever_runs_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["1", "2"].map(|jobs| {
        let file = folder.path().join(jobs);
        let output = reprieve(&["--jobs", jobs, "--json", file.to_str().unwrap()]);
        // The way to the rest names the file.
        let text = String::from_utf8(output.stdout).unwrap().split("All metrics").next().unwrap().to_string();
        (text, std::fs::read_to_string(file).unwrap())
    });
    assert!(one == two, "{}\n{}", one.0, two.0);
    let record = Record::from_json(&one.1).unwrap();
    assert!(
        record.command.starts_with("reprieve run rcu-conformance --set") && !record.command.contains("jobs")
    );
    let study = &record.studies[0];
    assert!(study.is_simulated() && study.observations.len() == 4);
    assert!(one.0.contains(&study.result_hash().unwrap()));
    let other = reprieve(&["--seed", "2"]).stdout;
    assert!(
        !String::from_utf8(other).unwrap().contains(&study.result_hash().unwrap()),
        "the seed changes nothing"
    );
}

#[test]
fn an_interrupted_simulation_ends_soon_and_keeps_what_had_finished() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
    // More than any machine simulates before the signal comes.
    command.args(&SHORT[..5]).args(["--repeat", "1000", "--jobs", "2", "--json"]).arg(&file);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("run 1 of 2000"), "{said}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(said.ends_with("reprieve: interrupted\n"), "{said}");
    let record = Record::from_json(&std::fs::read_to_string(file).unwrap()).unwrap();
    let study = &record.studies[0];
    assert_eq!(study.ended_early.as_deref(), Some("interrupted"));
    assert!((1..2000).contains(&study.observations.len()));
}

#[test]
fn a_scenario_beyond_a_limit_is_refused_before_it_is_expanded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.toml");
    let conditions: String = (0..4_000).map(|number| format!("[conditions.c{number}]\n")).collect();
    let text = format!("name = 'large'\ntitle = 't'\nworkload = {{ kind = 'memory' }}\n{conditions}");
    std::fs::write(&file, text).unwrap();
    let dry = ["run", file.to_str().unwrap(), "--dry-run"];
    let output = Command::new(env!("CARGO_BIN_EXE_reprieve")).args(dry).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("large.toml: conditions: 4000 conditions are more than 1024\n"), "{said}");
}

#[test]
fn what_a_run_has_recorded_is_replayed_beside_what_it_showed() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = folder.path().join("recordings");
    let _ = reprieve(&["--recordings", recordings.to_str().unwrap()]);
    // Of simulated runs, the first of each condition.
    let mut names: Vec<_> =
        std::fs::read_dir(&recordings).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["rcu-conformance-baseline-0.json", "rcu-conformance-quota-20-100-0.json"]);
    let tape = Tape::from_json(&std::fs::read_to_string(recordings.join(&names[1])).unwrap()).unwrap();
    assert!(tape.off(1).any(|off| off.length_ns() > 70_000_000), "vCPU 1 may run 20 ms of every 100 ms");
    let scenario = folder.path().join("replay.toml");
    let text = "name = 'replay'\ntitle = 't'\nworkload = { kind = 'memory' }\n[run]\nwarmup_ms = 100\nwindow_ms = 500\n\
                [guest]\nmemory_mib = 256\n[conditions.baseline]\n[conditions.quota]\n\
                replay = 'recordings/rcu-conformance-quota-20-100-0.json'";
    std::fs::write(&scenario, text).unwrap();
    let record = folder.path().join("record.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
    let output = command.arg("run").arg(&scenario).arg("--json").arg(&record).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("quota: rcu-conformance, quota-20-100, repetition 0; sim, reprieve"), "{said}");
    let record = Record::from_json(&std::fs::read_to_string(record).unwrap()).unwrap();
    let replayed = record.studies[0].runs_of("quota").next().unwrap().replayed.as_ref().unwrap();
    assert_eq!(replayed.metrics, tape.metrics);
    assert!(said.contains("Average grace periods are within a factor of "), "{said}");
    assert!(record.studies[0].runs_of("baseline").all(|run| run.replayed.is_none()));
}

/// This very process, whose test sleeps.
#[test]
fn a_process_s_thread_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.json");
    let me = std::process::id().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
    command.args(["record", "--pid", &me, "--tid", &me, "--for", "1", "--output"]).arg(&file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(69) && said.contains("perf_event_paranoid") {
        assert!(!file.exists());
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let tape = Tape::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((tape.vcpus(), tape.length_ns), (1, 1_000_000_000));
    assert!(tape.source.starts_with(&format!("process {me}, ")), "{}", tape.source);
    assert!(String::from_utf8(output.stdout).unwrap().contains(": kept from running "));
}

/// A thread that ends, and a signal, end a recording: what came until then is kept, and it is said.
#[test]
fn a_recording_that_ends_early_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    for how in ["thread", "signal"] {
        let file = folder.path().join(how);
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = sleeper.id().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_reprieve"));
        command.args(["record", "--pid", &pid, "--tid", &pid, "--for", "600", "--output"]).arg(&file);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        let is_permitted = said.starts_with("records 1 thread ");
        std::thread::sleep(std::time::Duration::from_millis(100));
        match how {
            "signal" if is_permitted => kill_process(Pid::from_child(&child), Signal::TERM).unwrap(),
            _ => sleeper.kill().unwrap(),
        }
        let _ = stderr.read_to_string(&mut said);
        let status = child.wait().unwrap();
        let _ = sleeper.kill();
        sleeper.wait().unwrap();
        if !is_permitted {
            assert_eq!(status.code(), Some(69), "{said}");
            continue;
        }
        assert!(status.success(), "{said}");
        let tape = Tape::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let why = if how == "thread" { "a thread has ended" } else { "a signal ended it" };
        assert!(tape.source.contains(why) && said.contains(why), "{said}{}", tape.source);
    }
}
