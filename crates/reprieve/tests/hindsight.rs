//! `reprieve record --hindsight` and `reprieve explain FILE`: kept, killed, without room, and judged. REPRIEVE_TEST_KILLS and
//! REPRIEVE_TEST_FULL_DISKS say how many rounds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reprieve_hindsight::{Record, read};
use reprieve_linux::child;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_reprieve");
/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A recorder, and what it says.
struct Recorder {
    child: Child,
    said: tempfile::NamedTempFile,
}

impl Recorder {
    fn start(folder: &Path, arguments: &[&str]) -> Recorder {
        let said = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["record", "--hindsight"]).arg(folder).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.reopen().unwrap());
        child::die_with_parent(&mut command);
        Recorder { child: command.spawn().unwrap(), said }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.said.path()).unwrap()
    }

    /// Waits until that is so.
    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < PATIENCE, "{what}: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it by a signal; its exit code.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        (self.child.wait().unwrap().code(), self.said())
    }
}

fn samples(path: &Path) -> usize {
    read(path).map_or(0, |record| count(&record))
}

fn count(record: &Record) -> usize {
    record.stretches.iter().map(|stretch| stretch.samples.len()).sum()
}

fn dumps(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder.join("dumps")).into_iter().flatten();
    let paths = found.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "reprieve")).collect()
}

fn explain(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("explain").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn rounds(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |rounds| rounds.parse().expect("a number"))
}

#[test]
fn a_threshold_dumps_and_tells_and_the_dump_is_judged() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("ring");
    let told = parent.path().join("told");
    let program = format!("dump,exec:sh -c 'env >{0}.new; mv {0}.new {0}'", told.display());
    let recorder = Recorder::start(&folder, &["--on-threshold", "available>1KiB", "--then", &program]);
    recorder.wait_for("the program runs", || told.exists());
    // A second one finds the folder taken.
    let second = Command::new(PROGRAM).args(["record", "--hindsight"]).arg(&folder).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(stderr(&second).contains("another process records into it"), "{}", stderr(&second));
    recorder.wait_for("three samples", || samples(&folder) >= 3);
    let (code, said) = recorder.end(Signal::TERM);
    assert_eq!((code, said.matches("available>1KiB: ").count()), (Some(0), 1), "{said}");
    let dumps = dumps(&folder);
    let [dump] = &dumps[..] else { panic!("{dumps:?}") };
    assert_eq!(fs::metadata(dump).unwrap().permissions().mode() & 0o777, 0o600);
    let variables = fs::read_to_string(&told).unwrap();
    for expected in ["REPRIEVE_THRESHOLD=available>1KiB", "REPRIEVE_METRIC=available"] {
        assert!(variables.lines().any(|line| line == expected), "{variables}");
    }
    assert!(variables.contains(&format!("REPRIEVE_DUMP={}", dump.display())), "{variables}");
    judged(dump, &parent);
}

/// It says what is in the dump, and writes it for others.
fn judged(dump: &Path, parent: &TempDir) {
    let dump = dump.to_str().unwrap();
    let text = stdout(&explain(&[dump]));
    assert!(text.contains("\nJudged: the worst "), "{text}");
    let trace = parent.path().join("trace");
    let output = explain(&[dump, "--last", "10s", "--json", "--perfetto", trace.to_str().unwrap()]);
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&value["record"]["chosen"], &value["record"]["damaged_lines"]), (&"last".into(), &0.into()));
    assert!(fs::metadata(trace).unwrap().len() > 100);
    let elsewhere = explain(&[dump, "--at", "2001-01-01T00:00:00Z"]);
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(
        stderr(&elsewhere).contains("nothing is recorded at 2001-01-01T00:00:00Z; it has 2"),
        "{}",
        stderr(&elsewhere)
    );
}

#[test]
fn what_explain_saw_is_saved_and_judged_again() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.reprieve");
    let path = saved.to_str().unwrap();
    let output = explain(&["--for", "2", "--tier", "T0", "--json", "--save", path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(samples(&saved) >= 1);
    let again = explain(&[path, "--last", "10s", "--json"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let causes = |output: &Output| {
        let verdict: Value = serde_json::from_str(&stdout(output)).unwrap();
        let findings = verdict["findings"].as_array().unwrap().clone();
        findings.iter().map(|finding| finding["cause"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(causes(&output), causes(&again));
    let verdict: Value = serde_json::from_str(&stdout(&again)).unwrap();
    assert_eq!(verdict["record"]["damaged_lines"], 0);
}

#[test]
fn a_record_of_a_year_ago_is_judged() {
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/../hindsight/tests/data/version-1.reprieve");
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("tape.json");
    let output = explain(&[old, "--tape", tape.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains(
            "\nJudged: the worst 3.00 s, up to 2023-11-14T22:13:23Z, of 4.00 s of test. 2 incidents.\n"
        ),
        "{text}"
    );
    let tape = reprieve_study::Tape::from_json(&fs::read_to_string(tape).unwrap()).unwrap();
    assert_eq!((tape.vcpus(), tape.length_ns, tape.off(0).count()), (2, 3_000_000_000, 6));
    assert!(stderr(&output).contains("a scenario replays it by: replay = "), "{}", stderr(&output));
}

#[test]
fn what_is_no_record_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let output = explain(&[folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("reprieve record --hindsight"), "{}", stderr(&output));
    let refused = |arguments: &[&str]| {
        let output =
            Command::new(PROGRAM).args(["record", "--hindsight", "/nowhere/ring"]).args(arguments).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    assert!(refused(&[]).contains("name a folder to write to"));
    assert!(refused(&["--on-threshold", "gp>1s"]).contains("there are gp_p99, gp_max, off,"));
    assert!(refused(&["--on-threshold", "off>1%", "--then", "mail"]).contains("exec:PROGRAM ARGUMENTS"));
    assert!(refused(&["--on-threshold", "off>1%", "--then", "signal:2147483647:USR1"]).contains("has ended"));
    assert!(
        refused(&["--on-threshold", "off>1%", "--then", "dump", "--then", "dump"]).contains("after each")
    );
}

#[test]
fn a_kill_leaves_a_ring_that_the_next_one_goes_on_with() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("ring");
    let mut most_ms = 0;
    for round in 0..rounds("REPRIEVE_TEST_KILLS", 2) {
        let before = samples(&folder);
        let recorder = Recorder::start(&folder, &[]);
        recorder.wait_for("a sample", || samples(&folder) > before);
        std::thread::sleep(Duration::from_millis(round * 37 % 1000));
        let (code, said) = recorder.end(Signal::KILL);
        assert_eq!(code, None, "{said}");
        let record = read(&folder).unwrap();
        assert_eq!(record.damaged, 0, "round {round}");
        assert!(count(&record) > before, "round {round}");
        let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let last = record.stretches.last().unwrap().samples.last().unwrap();
        most_ms = most_ms.max(day.as_millis() as u64 - last.day_ns / 1_000_000);
    }
    eprintln!("at most {most_ms} ms before the kill are lost");
}

/// Runs a recorder on a file system in memory that somebody else fills, and copies the ring out.
const ON_A_SMALL_DISK: &str = r#"
mount -t tmpfs -o size=256k none "$1" || exit 77
"$3" record --hindsight "$1/ring" & recorder=$!
sleep "2.$4"
head -c 1m /dev/zero >"$1/filler" 2>/dev/null
# Long enough to fill the page that the file already has; only then do writes fail.
sleep 10
rm "$1/filler"
sleep 2.3
kill -TERM $recorder
wait $recorder || exit 1
cp -r "$1/ring" "$2"
"#;

#[test]
fn a_full_disk_is_said_once_and_the_record_goes_on() {
    for round in 0..rounds("REPRIEVE_TEST_FULL_DISKS", 1) {
        let parent = tempfile::tempdir().unwrap();
        let (small, out) = (parent.path().join("small"), parent.path().join("out"));
        fs::create_dir(&small).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", ON_A_SMALL_DISK, "sh"]).arg(&small).arg(&out).arg(PROGRAM);
        let Ok(output) = command.arg(format!("{:03}", round * 37 % 1000)).output() else { return };
        if !matches!(output.status.code(), Some(0)) && !stderr(&output).contains("keeps the last minutes") {
            eprintln!("skipped: no file system may be mounted here: {}", stderr(&output));
            return;
        }
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let record = read(&out).unwrap();
        assert_eq!((record.damaged, record.torn), (0, 0), "round {round}: {said}");
        assert_eq!(said.matches("No space left on device").count(), 1, "{said}");
        assert_eq!(said.matches("records again;").count(), 1, "round {round}: {said}");
        let samples = record.stretches.iter().flat_map(|stretch| &stretch.samples);
        let times_ns: Vec<u64> = samples.map(|sample| sample.day_ns).collect();
        let longest_ns = times_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
        // It is there from before the disk was full, and from after.
        assert!(longest_ns >= Some(2_000_000_000), "round {round}: {times_ns:?}: {said}");
    }
}
