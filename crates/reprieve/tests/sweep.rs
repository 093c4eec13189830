//! `reprieve sweep`: simulated runs in shards, killed at any moment, and on a disk that is full: the table is the same to the byte.
//! REPRIEVE_TEST_KILLS and REPRIEVE_TEST_FULL_DISKS say how many rounds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use reprieve_linux::child;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
const SCENARIO: &str = "
    name = 'small'
    title = 'a small space'
    [run]
    repeat = 2
    warmup_ms = 0
    window_ms = 500
    [guest]
    memory_mib = 512
    [workload]
    kind = 'memory'
    burst = 10
    [conditions.baseline]
    [conditions.overcommitted]
    overcommit = 2.0
    [space.axes.overcommit]
    key = 'conditions.overcommitted.overcommit'
    values = [1.5, 3.0]
    [space.axes.scheduler]
    key = 'host.scheduler'
    values = ['cfs', 'eevdf', 'credit']
    [space.axes.vcpus]
    key = 'guest.vcpus'
    values = [1, 2]
";
/// Points by conditions by repetitions, and without those where the overcommit makes no difference.
const ROWS: usize = 12 * 2 * 2;
const RUNS: usize = 6 * 2 + 12 * 2;

struct Sweep {
    parent: TempDir,
}

impl Sweep {
    fn planned() -> Sweep {
        let sweep = Sweep { parent: tempfile::tempdir().unwrap() };
        fs::write(sweep.path("small.toml"), SCENARIO).unwrap();
        let planned = reprieve(&["sweep", "plan", &sweep.named("small.toml"), "-o", &sweep.folder()]);
        assert!(planned.status.success(), "{}", stderr(&planned));
        sweep
    }

    fn path(&self, name: &str) -> PathBuf {
        self.parent.path().join(name)
    }

    fn named(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().into()
    }

    fn folder(&self) -> String {
        self.named("sweep")
    }

    fn run(&self, more: &[&str]) -> Output {
        reprieve(&[&["sweep", "run", &self.folder()], more].concat())
    }

    fn status(&self) -> Value {
        let output = reprieve(&["sweep", "status", &self.folder(), "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    }

    /// Both tables.
    fn tables(&self) -> (String, Vec<u8>) {
        let merged = reprieve(&["sweep", "merge", &self.folder()]);
        assert!(merged.status.success(), "{}", stderr(&merged));
        tables_in(&self.path("sweep"))
    }
}

fn tables_in(folder: &Path) -> (String, Vec<u8>) {
    (fs::read_to_string(folder.join("table.csv")).unwrap(), fs::read(folder.join("table.parquet")).unwrap())
}

fn reprieve(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn rounds(variable: &str, few: u64) -> u64 {
    std::env::var(variable).map_or(few, |text| text.parse().unwrap())
}

fn undisturbed() -> (String, Vec<u8>) {
    let sweep = Sweep::planned();
    assert!(sweep.run(&[]).status.success());
    sweep.tables()
}

#[test]
fn shards_give_the_table_that_one_process_gives_and_say_how_far_they_are() {
    let sweep = Sweep::planned();
    let merged = reprieve(&["sweep", "merge", &sweep.folder()]);
    assert_eq!(merged.status.code(), Some(1));
    assert!(stderr(&merged).contains(&format!("{RUNS} of {RUNS} runs are missing")), "{}", stderr(&merged));
    for shard in ["3/3", "1/3", "2/3"] {
        let ran = sweep.run(&["--shard", shard]);
        assert!(stdout(&ran).contains(&format!("of shard {shard} are done")), "{}", stdout(&ran));
    }
    let status = sweep.status();
    assert_eq!((status["done"].as_u64(), status["rows"].as_u64()), (Some(RUNS as u64), Some(ROWS as u64)));
    let (table, parquet) = sweep.tables();
    assert_eq!(table.lines().count(), ROWS + 1);
    assert_eq!((table, parquet), undisturbed());
    assert!(stdout(&sweep.run(&[])).contains("were done before"));
}

#[test]
fn whatever_is_killed_and_whenever_what_had_finished_is_kept() {
    let expected = undisturbed();
    let (kills, mut done) = (rounds("REPRIEVE_TEST_KILLS", 4), 0);
    let mut sweep = Sweep::planned();
    for round in 0..kills {
        let mut command = Command::new(PROGRAM);
        command
            .args(["sweep", "run", &sweep.folder(), "--quiet"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        child::die_with_parent(&mut command);
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + round * 37 % 400));
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        let status = sweep.status();
        let now = status["done"].as_u64().unwrap();
        assert!(now >= done, "round {round}: nothing that had finished is lost");
        assert_eq!(status["damaged"], 0, "round {round}");
        done = now;
        if done == RUNS as u64 {
            assert_eq!(sweep.tables(), expected, "round {round}");
            (sweep, done) = (Sweep::planned(), 0);
        }
    }
    assert!(sweep.run(&[]).status.success());
    assert_eq!(sweep.tables(), expected);
}

#[test]
fn a_signal_ends_it_politely_and_the_same_command_goes_on() {
    let sweep = Sweep::planned();
    let mut command = Command::new(PROGRAM);
    command.args(["sweep", "run", &sweep.folder()]).stdout(Stdio::null()).stderr(Stdio::piped());
    child::die_with_parent(&mut command);
    let child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    // It may have been done before.
    if ended.status.code() != Some(0) {
        assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
        assert!(stderr(&ended).contains("the same command goes on"), "{}", stderr(&ended));
    }
    assert!(sweep.run(&[]).status.success());
    assert_eq!(sweep.tables(), undisturbed());
}

/// Runs a sweep on a file system in memory that is too small, makes it larger, and goes on.
const ON_A_SMALL_DISK: &str = r#"
mkdir "$1" && mount -t tmpfs -o "size=$4k" none "$1" || exit 77
cp -r "$2" "$1/sweep" || exit 77
"$3" sweep run "$1/sweep" --quiet >/dev/null && exit 78
mount -o remount,size=64m "$1" || exit 77
"$3" sweep run "$1/sweep" --quiet >/dev/null || exit 1
"$3" sweep merge "$1/sweep" --quiet >/dev/null || exit 1
cp "$1/sweep/table.csv" "$1/sweep/table.parquet" "$2"
"#;

#[test]
fn a_full_disk_is_said_and_what_had_finished_is_kept() {
    let expected = undisturbed();
    for round in 0..rounds("REPRIEVE_TEST_FULL_DISKS", 1) {
        let sweep = Sweep::planned();
        let mut command = Command::new("unshare");
        command.args([
            "-rm",
            "sh",
            "-c",
            ON_A_SMALL_DISK,
            "sh",
            &sweep.named("small"),
            &sweep.folder(),
            PROGRAM,
        ]);
        // Enough for the plan, and for a part of the results.
        let Ok(output) = command.arg(format!("{}", 40 + round % 9)).output() else { return };
        match output.status.code() {
            Some(0) => {}
            Some(77) => {
                eprintln!("skipped: no file system may be mounted here: {}", stderr(&output));
                return;
            }
            code => panic!("round {round}: {code:?} {}", stderr(&output)),
        }
        assert_eq!(stderr(&output).matches("No space left on device").count(), 1, "{}", stderr(&output));
        assert_eq!(tables_in(&sweep.path("sweep")), expected, "round {round}");
    }
}

#[test]
fn a_slip_is_refused_with_the_way_out() {
    let sweep = Sweep::planned();
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = reprieve(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    };
    let (folder, nowhere) = (sweep.folder(), sweep.named("nowhere"));
    refused(&["sweep", "run", &nowhere], 2, "reprieve sweep plan");
    refused(&["sweep", "run", &folder, "--shard", "4/3"], 2, "from 1/10 to 10/10");
    refused(&["sweep", "plan", "rcu-memory", "-o", &nowhere], 2, "add [space]");
    refused(
        &["sweep", "plan", &sweep.named("small.toml"), "-o", &folder, "--set", "run.repeat=3"],
        2,
        "another plan",
    );
}

#[test]
fn two_sweeps_are_compared_point_by_point() {
    let (one, other) = (Sweep::planned(), Sweep::planned());
    [&one, &other].iter().for_each(|sweep| assert!(sweep.run(&[]).status.success()));
    let shown = |folder: &str, versus: &str| {
        reprieve(&[
            "sweep",
            "show",
            folder,
            "--by",
            "scheduler",
            "--metric",
            "gp_mean_ns",
            "--versus",
            versus,
        ])
    };
    let alike = shown(&one.folder(), &other.folder());
    assert!(alike.status.success(), "{}", stderr(&alike));
    // A line for each scheduler, of all its 8 runs: runs repeat exactly.
    assert_eq!(stdout(&alike).matches("1.00").count() / 3, 3, "{}", stdout(&alike));
    fs::write(one.path("less.toml"), SCENARIO.replace("[1, 2]", "[1]")).unwrap();
    let (file, less) = (one.named("less.toml"), one.named("less"));
    assert!(reprieve(&["sweep", "plan", &file, "-o", &less]).status.success());
    let refused = shown(&one.folder(), &less);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("its points are others"), "{}", stderr(&refused));
}

#[test]
fn slurm_s_scripts_say_what_each_task_does() {
    let sweep = Sweep::planned();
    let submitted =
        reprieve(&["sweep", "submit", &sweep.folder(), "--engine", "slurm", "--dry-run", "--tasks", "5"]);
    assert!(submitted.status.success(), "{}", stderr(&submitted));
    // All of it may have been done to learn how long runs take.
    if !stdout(&submitted).contains("All runs are done") {
        let script = fs::read_to_string(sweep.path("sweep/slurm/array.sh")).unwrap();
        assert!(script.contains("--array=1-5\n") && script.contains("$SLURM_ARRAY_TASK_ID/5"), "{script}");
    }
}
