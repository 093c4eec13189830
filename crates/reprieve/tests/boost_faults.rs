//! `reprieve boost` when things go wrong: guests that die, restart or move away, tables of another kernel, missing rights,
//! many guests, and kills. Whatever happens, it says what, and quotas are as they were.
//!
//! The VMs are started as anybody would, without the laboratory: see `support::vm`.

mod support;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rand::RngExt;
use reprieve_linux::child;
use reprieve_study::statistics;
use reprieve_vm::image::Cache;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::vm::{Begin, Vm, image, quota};
use support::{Guests, MARK, PROGRAM, guests, processes_marked};

/// Guests at a time, of which one has a quota.
const MANY: usize = 50;
/// How many kills there are; `make signals` does 100.
const KILLS: u64 = 10;
/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// `reprieve boost --json` with these arguments.
fn boost(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["boost", "--json"]).args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A test that fails leaves none behind.
    child::die_with_parent(&mut command);
    command
}

/// One that acts on this VM until it is told to end.
fn acting(vm: &Vm) -> Child {
    boost(&["--apply", "--pid", &vm.pid().to_string()]).spawn().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// What it said of each guest at its end.
fn results(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == "guest").collect()
}

fn end(child: Child) -> Output {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what} took too long");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Waits until this one lends of the group's quota.
fn wait_for_visit(boosting: &mut Child, group: &Path, before: &str) {
    let since = Instant::now();
    while quota(group) == before {
        let ended = boosting.try_wait().unwrap();
        if ended.is_some() || since.elapsed() > PATIENCE {
            let _ = boosting.kill();
            let mut text = String::new();
            boosting.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            boosting.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("no visit ({ended:?}): {text}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A VM whose vCPU 1 has a quota, and both vCPUs work in the kernel.
fn busy(guests: &Guests, name: &str) -> Option<(Vm, PathBuf)> {
    let mut vm = Vm::start(guests, name);
    let group = vm.limit()?;
    vm.link.start("memory").unwrap();
    Some((vm, group))
}

#[test]
fn a_guest_that_dies_while_it_is_boosted_leaves_its_quota_as_it_was() {
    let Some(guests) = guests() else { return };
    let Some((mut vm, group)) = busy(&guests, "dies") else { return };
    let before = quota(&group);
    let mut boosting = acting(&vm);
    wait_for_visit(&mut boosting, &group, &before);
    vm.kill();
    let output = boosting.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).contains("it has ended"), "{}", said(&output));
    assert_eq!(quota(&group), before);
}

#[test]
fn a_guest_that_dies_while_it_is_attached_to_is_named() {
    let Some(guests) = guests() else { return };
    // Attaching takes longer than this. How much longer depends on the machine, so the moments differ.
    for delay_ms in [0, 5, 40, 200] {
        let mut vm = Vm::start(&guests, "dies-early");
        let watching = boost(&["--for", "60", "--pid", &vm.pid().to_string()]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        vm.kill();
        let output = watching.wait_with_output().unwrap();
        let code = output.status.code();
        assert!(
            matches!(code, Some(0..=2)) && said(&output).contains("ended"),
            "after {delay_ms} ms: {code:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn tables_of_another_kernel_are_refused() {
    let Some(guests) = guests() else { return };
    let mut vm = Vm::start(&guests, "tables");
    let pid = vm.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let cache = Cache::new(guests.cache.clone()).unwrap();
    let own = image(&guests).kernel.btf_bytes(&cache, &mut |_| {}).unwrap();
    // The layouts of the host's kernel, which is another one.
    let host = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let btfs = [
        ("none", &[][..]),
        ("zeros", &[0; 4096]),
        ("half", &own[..own.len() / 2]),
        ("head", &own[..24]),
        ("host", &host[..]),
    ];
    for (name, bytes) in btfs {
        let output = boost(&["--for", "1", "--pid", &pid, "--btf", &file(name, bytes)]).output().unwrap();
        assert!(
            output.status.code() == Some(1) && said(&output).contains("--btf"),
            "{name}: {}",
            said(&output)
        );
    }
    // Symbols that are all beside their places.
    let listed = String::from_utf8(vm.link.read_whole("/proc/kallsyms", 64 << 20).unwrap()).unwrap();
    let beside = listed.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        Some(format!("{:016x} {rest}\n", u64::from_str_radix(address, 16).ok()?.wrapping_add(64)))
    });
    let symbols = file("symbols", beside.collect::<String>().as_bytes());
    let output = boost(&["--for", "1", "--pid", &pid, "--symbols", &symbols]).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains("--symbols"), "{}", said(&output));
}

/// A command in a mount namespace of its own, where this folder cannot be written.
fn without_writes(folder: &Path, command: &Command) -> Command {
    let mut confined = Command::new("unshare");
    child::die_with_parent(&mut confined);
    let script = r#"mount -o bind,ro "$0" "$0" && exec "$@""#;
    confined
        .args(["--mount", "sh", "-c", script])
        .arg(folder)
        .arg(command.get_program())
        .args(command.get_args());
    confined
}

#[test]
fn without_the_right_to_write_quotas_it_says_which_and_how_to_get_it() {
    let Some(guests) = guests() else { return };
    let Some((vm, group)) = busy(&guests, "rights") else { return };
    let pid = vm.pid().to_string();
    let before = quota(&group);
    let apply = boost(&["--apply", "--limit-s", "2", "--pid", &pid]);
    let output = without_writes(&group, &apply).output().unwrap();
    assert!(
        output.status.code() == Some(69) && said(&output).contains("cpu.") && said(&output).contains("root"),
        "{:?}: {}",
        output.status,
        said(&output)
    );
    // To watch, nothing is written.
    let output = without_writes(&group, &boost(&["--for", "1", "--pid", &pid])).output().unwrap();
    assert!(
        output.status.success() && results(&output)[0]["limited_vcpus"] == json!([1]),
        "{}",
        said(&output)
    );
    assert_eq!(quota(&group), before);
}

#[test]
fn a_guest_that_restarts_is_found_again_and_boosted_again() {
    let Some(guests) = guests() else { return };
    let Some((mut vm, group)) = busy(&guests, "restarts") else { return };
    let before = quota(&group);
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("m.prom");
    let pid = vm.pid().to_string();
    let boosting =
        boost(&["--apply", "--pid", &pid, "--metrics", metrics.to_str().unwrap()]).spawn().unwrap();
    let metric = |name: &str| -> f64 {
        let text = std::fs::read_to_string(&metrics).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(&format!("reprieve_boost_{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    };
    wait_until("a visit", || metric("visits_total") > 0.0);
    vm.ask(json!({"execute": "system_reset"}));
    vm.link.wait_ready(PATIENCE).unwrap();
    vm.link.start("memory").unwrap();
    wait_until("the restart is noticed", || metric("restarts_total") > 0.0 && metric("watched") > 0.0);
    let visits = metric("visits_total");
    wait_until("a visit after the restart", || metric("visits_total") > visits);
    let output = end(boosting);
    let result = &results(&output)[0];
    assert!(output.status.success() && result["restarts"] == 1, "{}", said(&output));
    assert_eq!(quota(&group), before);
}

#[test]
fn a_guest_that_moves_away_is_left_alone_and_one_that_arrives_is_found() {
    let Some(guests) = guests() else { return };
    let Some((mut vm, group)) = busy(&guests, "moves") else { return };
    let before = quota(&group);
    let mut boosting = boost(&["--apply"]).spawn().unwrap();
    wait_for_visit(&mut boosting, &group, &before);
    let mut target = Vm::spawn(&guests, "moved", Begin::Incoming);
    let arrived = target.limit().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("state").display());
    target.receive(&address);
    vm.migrate(&address);
    target.wait_for("running");
    // What has left stands still, and borrows nothing.
    wait_until("the quota is back", || quota(&group) == before);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(quota(&group), before);
    wait_for_visit(&mut boosting, &arrived, &before);
    vm.kill();
    std::thread::sleep(Duration::from_millis(500));
    let output = end(boosting);
    let results = results(&output);
    assert!(output.status.success() && results.len() == 2, "{}", said(&output));
    assert!(results.iter().all(|result| result["visits"].as_u64() > Some(0)), "{results:?}");
    assert_eq!((quota(&group), quota(&arrived)), (before.clone(), before));
}

#[test]
fn fifty_guests_are_watched_and_the_one_that_needs_it_is_boosted() {
    let Some(guests) = guests() else { return };
    let Some((vm, group)) = busy(&guests, "busy") else { return };
    let before = quota(&group);
    let others: Vec<Vm> = (1..MANY).map(|number| Vm::start(&guests, &format!("idle-{number}"))).collect();
    // Where a guest was not found at first, beside so many others, there is time for further tries.
    let output = boost(&["--apply", "--limit-s", "20"]).output().unwrap();
    let results = results(&output);
    assert!(output.status.success() && results.len() == MANY, "{} results: {}", results.len(), said(&output));
    for result in &results {
        let is_busy = result["pid"] == vm.pid();
        assert!(result["watched_ns"].as_u64() > Some(1_000_000_000), "{result}");
        assert_eq!(result["visits"].as_u64() > Some(0), is_busy, "{result}");
    }
    assert_eq!(quota(&group), before);
    drop(others);
}

#[test]
fn killed_at_any_moment_it_leaves_nothing_behind() {
    let Some(guests) = guests() else { return };
    let Some((vm, group)) = busy(&guests, "kills") else { return };
    let setting = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seed, kills) = (setting("REPRIEVE_TEST_SEED", 1), setting("REPRIEVE_BOOST_KILLS", KILLS));
    let mut rng = statistics::stream(seed, "kills of boosts");
    let (before, mut lent) = (quota(&group), 0);
    for number in 0..kills {
        let mark = format!("boost-{}-{number}", std::process::id());
        let mut command = boost(&["--apply", "--pid", &vm.pid().to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).env(MARK, &mark);
        let mut boosting = command.spawn().unwrap();
        let delay_us = rng.random_range(0..1_500_000);
        std::thread::sleep(Duration::from_micros(delay_us));
        boosting.kill().unwrap();
        boosting.wait().unwrap();
        lent += u64::from(quota(&group) != before);
        let case = format!("kill {number} of seed {seed}, after {delay_us} us");
        wait_until(&case, || quota(&group) == before && processes_marked(&mark).is_empty());
    }
    println!("{lent} of {kills} kills came while something was lent");
    assert!(lent > 0 || kills < 100, "no kill came while something was lent");
    let output = boost(&["--apply", "--limit-s", "1", "--pid", &vm.pid().to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(quota(&group), before);
}
