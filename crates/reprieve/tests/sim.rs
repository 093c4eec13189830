//! The default ground needs nothing of the machine but the program, and gives the same again.

use std::process::{Command, Output};

use reprieve_study::Record;

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
        (output.stdout, std::fs::read_to_string(file).unwrap())
    });
    assert!(one == two, "{}\n{}", String::from_utf8_lossy(&one.0), String::from_utf8_lossy(&two.0));
    let record = Record::from_json(&one.1).unwrap();
    assert!(
        record.command.starts_with("reprieve run rcu-conformance --set") && !record.command.contains("jobs")
    );
    let study = &record.studies[0];
    assert!(study.is_simulated() && study.observations.len() == 4);
    assert!(String::from_utf8(one.0).unwrap().contains(&study.result_hash().unwrap()));
    let other = reprieve(&["--seed", "2"]).stdout;
    assert!(
        !String::from_utf8(other).unwrap().contains(&study.result_hash().unwrap()),
        "the seed changes nothing"
    );
}
