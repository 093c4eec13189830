//! Guests that fail, machines that lack something: the error says what happened and how it can be helped,
//! and nothing hangs.

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use reprieve_vm::image::{Cache, ImageOptions, prepare};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use support::{Guests, PROGRAM, Run};

/// One short run of the memory microbenchmark; later assignments win.
const SHORT: [&str; 6] = [
    "rcu-memory",
    "--set=run.conditions=[\"overcommitted\"]",
    "--set=run.repeat=1",
    "--set=run.window_ms=500",
    "--set=run.warmup_ms=0",
    "--set=run.foreign_cpu_limit_percent=100",
];
const TCG: &str = "--set=guest.accelerator=tcg";
/// A user without any rights.
const NOBODY: u32 = 65_534;

/// A short run with more arguments, that must fail: what it said.
fn failing(guests: &Guests, more: &[&str]) -> String {
    let mut run = Run::start(guests, &[&SHORT[..], more].concat());
    let ended = run.wait_end();
    assert_eq!(ended.code(), 1, "{}", ended.stderr);
    assert!(run.record().is_none() && ended.stdout.is_empty());
    run.assert_nothing_is_left(&more.join(" "));
    ended.stderr
}

#[test]
fn a_guest_that_panics_tells_its_last_words() {
    let Some(guests) = support::guests() else { return };
    let said = failing(&guests, &[TCG, "--set=guest.append=rdinit=/nonexistent"]);
    assert!(
        said.contains("reprieve: the guest ended before it could boot (QEMU ended, exit status: 0)"),
        "{said}"
    );
    let (_, console) = said.split_once("; its console ended with:\n").expect(&said);
    assert!(console.contains("Kernel panic"), "{said}");
}

#[test]
fn a_guest_that_hangs_is_given_up_at_the_deadline() {
    let Some(guests) = support::guests() else { return };
    let hang = "--set=guest.append=loglevel=7 rdinit=/bin/usleep -- 1000000000";
    let said = failing(&guests, &[TCG, hang, "--set=guest.boot_limit_ms=10000"]);
    let (_, console) = said
        .split_once("reprieve: the guest did not boot within 10 s; its console ended with:\n")
        .expect(&said);
    // How far it came in that time is the machine's matter.
    assert!(console.lines().all(|line| line.starts_with("    ")) && console.contains("] "), "{said}");
}

#[test]
fn a_guest_that_hangs_without_a_word_is_started_twice() {
    let Some(guests) = support::guests() else { return };
    let hang = "--set=guest.append=rdinit=/bin/usleep -- 1000000000";
    let started = Instant::now();
    let said = failing(&guests, &[TCG, hang, "--set=guest.boot_limit_ms=5000"]);
    assert!(started.elapsed() >= Duration::from_secs(10), "{said}");
    assert!(
        said.contains("the guest did not boot within 5 s and printed nothing; its vCPUs are at 0x"),
        "{said}"
    );
    assert!(said.contains("guest.append=loglevel=7"), "{said}");
}

#[test]
fn a_killed_qemu_ends_the_plan_and_finished_runs_are_kept() {
    let Some(guests) = support::guests() else { return };
    let arguments = [&SHORT[..], &[TCG, "--set=run.window_ms=5000", "--set=run.repeat=1000"]].concat();
    let mut run = Run::start(&guests, &arguments);
    run.wait_until("the first run's end", |run| run.said().contains(": run 1 of 1000"));
    let machine = |run: &Run| run.processes().into_iter().find(|process| process.is_pinned());
    run.wait_until("the second guest", |run| machine(run).is_some());
    let pid = machine(&run).expect("it was there a moment ago").pid;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let ended = run.wait_end();
    assert_eq!(ended.code(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("QEMU ended, signal: 9"), "{}", ended.stderr);
    let record = run.record().expect("a record of the first run");
    let study = &record.studies[0];
    assert_eq!(study.observations.len(), 1);
    assert!(study.ended_early.as_deref().unwrap().contains("QEMU ended, signal: 9"));
    run.assert_nothing_is_left("a killed QEMU");
}

/// Puts the answer of an earlier probe aside, and back: this test's answer may be of a machine under load.
struct Forgotten(Option<(std::path::PathBuf, Vec<u8>)>);

impl Forgotten {
    fn in_cache(cache: &Path) -> Forgotten {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let path = cache.join(format!("kvm-probe-{}", boot_id.trim()));
        let kept = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        Forgotten(kept.map(|kept| (path, kept)))
    }
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        if let Some((path, kept)) = self.0.take() {
            let _ = fs::write(path, kept);
        }
    }
}

/// Whether KVM is there, is not there, or is there and useless: a run under `auto` ends, and says why it
/// took what it took.
#[test]
fn kvm_that_opens_and_does_not_work_is_noticed() {
    let Some(guests) = support::guests() else { return };
    let _forgotten = Forgotten::in_cache(&guests.cache);
    let mut run = Run::start(&guests, &[&SHORT[..], &["--set=guest.accelerator=auto"]].concat());
    let ended = run.wait_end();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let record = run.record().unwrap();
    let provenance = &record.studies[0].observations[0].provenance;
    let opened = fs::File::options().read(true).write(true).open("/dev/kvm");
    let why = match (opened, provenance.accelerator.as_str()) {
        (Err(_), "tcg") => "/dev/kvm: ",
        (Ok(_), "tcg") => "/dev/kvm opens, but a probe guest did not reach user space within",
        (Ok(_), "kvm") => "KVM works",
        (opened, other) => panic!("{opened:?}, {other}"),
    };
    assert!(provenance.accelerator_reason.starts_with(why), "{}", provenance.accelerator_reason);
    run.assert_nothing_is_left("auto");
}

#[test]
fn kvm_that_was_asked_for_and_does_not_work_is_an_error_in_time() {
    let Some(guests) = support::guests() else { return };
    let more = ["--set=guest.accelerator=kvm", "--set=guest.boot_limit_ms=5000"];
    let mut run = Run::start(&guests, &[&SHORT[..], &more].concat());
    let ended = run.wait_end();
    match ended.code() {
        0 => {}
        // It does not come up, or QEMU does not even begin.
        1 if ended.stderr.contains("the guest ") => {}
        1 | 69 => assert!(ended.stderr.contains("set guest.accelerator=tcg"), "{}", ended.stderr),
        code => panic!("{code}: {}", ended.stderr),
    }
    run.assert_nothing_is_left("kvm");
}

/// A user without any rights: no quotas, so vCPUs share a pCPU, and the run says so and what would help. Nor can this user
/// write into the cache, in which all is that the run needs.
#[test]
fn without_root_a_run_works_and_says_what_it_lacks() {
    let Some(guests) = support::guests() else { return };
    let home = tempfile::tempdir().unwrap();
    let command = match geteuid().is_root() {
        true => as_nobody(&guests, home.path()),
        false => {
            let mut command = Command::new(PROGRAM);
            if let Some(home) = &guests.cache_home {
                command.env("XDG_CACHE_HOME", home.path());
            }
            command
        }
    };
    let quotas = !geteuid().is_root() && support::quotas_are_permitted();
    let mut run = Run::start_with(command, &[&SHORT[..], &[TCG]].concat());
    let ended = run.wait_end();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let record = run.record().unwrap();
    let condition = &record.studies[0].scenario.conditions["overcommitted"];
    if !quotas {
        let note = "overcommitted: all vCPUs pinned to one pCPU, because CPU quotas are not permitted (";
        assert!(ended.stderr.contains(&format!("warning: {note}")), "{}", ended.stderr);
        // The way out.
        assert!(ended.stderr.contains("run as root") || ended.stderr.contains("mount"), "{}", ended.stderr);
        assert!(condition.quota.is_empty() && condition.pcpus.len() == 1, "{condition:?}");
        let unwrapped = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains("because CPU quotas are not permitted"), "{}", ended.stdout);
    }
    run.assert_nothing_is_left("without root");
}

/// The command as user nobody, with a copy of the program and of the cache that this user can read, but not change.
fn as_nobody(guests: &Guests, home: &Path) -> Command {
    fs::set_permissions(home, Permissions::from_mode(0o755)).unwrap();
    let program = home.join("reprieve-copy");
    fs::copy(PROGRAM, &program).unwrap();
    let cache = home.join("cache");
    fs::create_dir(&cache).unwrap();
    let sh = |words: &[&str], paths: &[&Path]| {
        assert!(Command::new(words[0]).args(&words[1..]).args(paths).status().unwrap().success());
    };
    sh(&["cp", "-a", "--no-target-directory"], &[&guests.cache, &cache.join("reprieve")]);
    // What is in it knows its place: at a new one, the file system is another.
    let copy = Cache::new(cache.join("reprieve")).unwrap();
    prepare(&copy, &ImageOptions::default(), &mut |_| ()).unwrap();
    // Whoever has made it: it is root's.
    sh(&["chown", "-R", "0:0"], &[&cache]);
    sh(&["chmod", "-R", "a+rX,go-w"], &[&cache]);
    sh(&["chown", &format!("{NOBODY}:{NOBODY}")], &[home, &program]);
    let id = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
    command.env("HOME", home).env("XDG_CACHE_HOME", cache).current_dir(home);
    command
}
