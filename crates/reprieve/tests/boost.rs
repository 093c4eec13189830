//! `reprieve boost`: what it refuses, and a real guest that it watches, boosts, and leaves as it was.

mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{PATIENCE, PROGRAM, Process, Run, guests, quotas_are_permitted};

fn boost(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("boost").args(arguments).output().unwrap()
}

fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = boost(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_is_no_guest_is_refused() {
    let own = std::process::id().to_string();
    let (code, said) = refusal(&["--pid", &own]);
    assert!(code == 2 && said.contains("debug-threads=on"), "{code}: {said}");
    let (code, said) = refusal(&["--pid", "2147483647"]);
    assert!(code == 2 && said.contains("has ended"), "{code}: {said}");
    // A process that has a vCPU's thread, but no guest's memory.
    let (ready, is_ready) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("CPU 0/KVM".into()).spawn(move || {
        ready.send(()).unwrap();
        let _ = ended.recv();
    });
    is_ready.recv().unwrap();
    let (code, said) = refusal(&["--pid", &own, "--json"]);
    drop(end);
    thread.unwrap().join().unwrap();
    assert!(code == 1 && said.contains("has no mapping of the 128 MiB"), "{code}: {said}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let (code, said) = refusal(&["--for", "0"]);
    assert!(code == 2 && said.contains("--for"), "{code}: {said}");
    let (code, said) = refusal(&["--apply", "--for", "5"]);
    assert!(code == 2 && said.contains("--for") && said.contains("--apply"), "{code}: {said}");
    let (code, said) = refusal(&["--pid", "0"]);
    assert!(code == 2 && said.contains("--pid"), "{code}: {said}");
}

/// A run whose vCPU 1 has a quota, and its QEMU's PID.
const QUOTA: [&str; 6] = [
    "rcu-memory",
    "--set=run.conditions=[\"overcommitted\"]",
    "--set=run.window_ms=600000",
    "--set=run.warmup_ms=0",
    "--set=guest.accelerator=tcg",
    "--set=run.foreign_cpu_limit_percent=100",
];

fn quota_files(run: &Run) -> Vec<(PathBuf, String)> {
    let files = run.cgroups().into_iter().flat_map(|directory| {
        let groups = std::fs::read_dir(directory).into_iter().flatten().flatten();
        groups
            .flat_map(|group| ["cpu.max", "cpu.cfs_quota_us"].map(|name| group.path().join(name)))
            .collect::<Vec<_>>()
    });
    let read = |path: PathBuf| Some((path.clone(), std::fs::read_to_string(path).ok()?));
    files.filter_map(read).filter(|(_, text)| text.starts_with(|c: char| c.is_ascii_digit())).collect()
}

fn watched(pid: i32, more: &[&str]) -> Value {
    let pid = pid.to_string();
    let output = boost(&[&["--json", "--pid", &pid], more].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["event"] == "guest").unwrap()
}

#[test]
fn a_real_guest_is_watched_and_boosted_and_left_as_it_was() {
    let Some(guests) = guests() else { return };
    if !quotas_are_permitted() {
        return eprintln!("skipped: CPU quotas are not permitted");
    }
    let mut run = Run::start(&guests, &QUOTA);
    run.wait_until("its guest has booted", |run| run.processes().iter().any(Process::is_pinned));
    run.wait_until("vCPU 1 has a quota", |run| !quota_files(run).is_empty());
    let pid = run.processes().into_iter().find(Process::is_qemu).unwrap().pid;
    let before = quota_files(&run);
    // The workload begins a moment later.
    std::thread::sleep(Duration::from_secs(1));

    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("m.prom");
    let seen = watched(pid, &["--for", "2", "--metrics", metrics.to_str().unwrap()]);
    eprintln!("{seen}");
    assert!(
        seen["grace_periods"].as_u64().unwrap() > 0 && seen["watched_ns"].as_u64().unwrap() > 1_000_000_000
    );
    assert_eq!(
        (seen["limited_vcpus"].clone(), seen["applied"].clone()),
        (serde_json::json!([1]), Value::Bool(false))
    );
    assert_eq!((seen["lent_ns"].as_u64(), seen["ended"].clone()), (Some(0), Value::Null));
    assert!(
        std::fs::read_to_string(&metrics)
            .unwrap()
            .contains("reprieve_boost_grace_periods_total{guest=\"reprieve\"")
    );
    assert_eq!(quota_files(&run), before, "without --apply nothing is written");

    // Metrics that cannot be written do not end it.
    let nowhere = folder.path().join("absent/m.prom");
    let seen = watched(pid, &["--apply", "--limit-s", "4", "--metrics", nowhere.to_str().unwrap()]);
    eprintln!("{seen}");
    assert!(seen["visits"].as_u64().unwrap() > 0 && seen["lent_ns"].as_u64().unwrap() > 0, "{seen}");
    assert_eq!(seen["applied"], Value::Bool(true));
    assert_eq!(quota_files(&run), before, "quotas are put back");

    // Killed while it has lent something: the warden puts it back.
    let apply = || {
        let mut command = Command::new(PROGRAM);
        command.args(["boost", "--apply", "--pid", &pid.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut killed = apply();
    let lends = || quota_files(&run) != before;
    wait_until("a first visit", lends);
    let (code, said) = refusal(&["--apply", "--limit-s", "1", "--pid", &pid.to_string()]);
    assert!(code != 0 && said.contains("another `reprieve boost --apply`"), "{code}: {said}");
    wait_until("a visit", lends);
    kill_process(Pid::from_child(&killed), Signal::KILL).unwrap();
    killed.wait().unwrap();
    wait_until("the quota is back", || quota_files(&run) == before);

    // Killed with its warden: the next one puts it back.
    kill_with_its_warden(apply, lends);
    std::thread::sleep(Duration::from_millis(500));
    assert!(lends(), "nobody is left to put it back");
    let seen = watched(pid, &["--apply", "--limit-s", "1"]);
    assert_eq!(quota_files(&run), before, "{seen}");

    run.signal(Signal::INT);
    run.wait_end();
    run.assert_nothing_is_left("boosted");
}

/// Starts one and kills it with its warden while it lends. A kill may come just when the quota is as it was; then it tries
/// again.
fn kill_with_its_warden(start: impl Fn() -> Child, lends: impl Fn() -> bool) {
    for _ in 0..20 {
        let mut killed = start();
        wait_until("a visit", &lends);
        children(killed.id()).into_iter().chain([killed.id() as i32]).for_each(|pid| {
            // A warden that sees the end of the other first would put the quota back.
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        });
        killed.wait().unwrap();
        if lends() {
            break;
        }
    }
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what} took too long");
        std::thread::sleep(Duration::from_micros(200));
    }
}
