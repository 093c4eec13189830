//! A run is ended by signals at moments all over its course; nothing of it is left, and what had finished is
//! kept. The delays come from a seed, `REPRIEVE_TEST_SEED`; what is asserted does not depend on them.

mod support;

use std::process::Command;
use std::time::Duration;

use rand::RngExt;
use reprieve_linux::cgroup::Cgroups;
use reprieve_linux::proc::ProcRoot;
use reprieve_study::statistics;
use rustix::process::Signal;
use support::{Ended, Guests, Run, quotas_are_permitted};

/// A guest that boots and then never says or hears anything: it does not power off when its host is gone.
const DEAF: &str = "guest.append=rdinit=/bin/usleep -- 1000000000";

/// The overcommitted condition, in a window that does not end by itself.
const QUOTA: [&str; 6] = [
    "rcu-memory",
    "--set=run.conditions=[\"overcommitted\"]",
    "--set=run.window_ms=600000",
    "--set=run.warmup_ms=500",
    "--set=guest.accelerator=tcg",
    "--set=run.foreign_cpu_limit_percent=100",
];

const CROWDED: &str = r#"
name = "crowded"
title = "everything a condition can ask for"
[run]
repeat = 1
window_ms = 600000
conditions = ["crowded"]
[guest]
vcpus = 2
memory_mib = 256
accelerator = "tcg"
[workload]
kind = "memory"
[conditions.baseline]
[conditions.crowded]
quota = [{ vcpu = 1, percent = 20 }]
neighbours = 1
hogs = 1
"#;

/// Real-time threads of the host take the guest's pCPUs, and its devices are real-time, too.
const BURSTS: &str = r#"
name = "bursts"
title = "real-time threads"
[run]
repeat = 1
window_ms = 600000
conditions = ["taken"]
[guest]
vcpus = 2
memory_mib = 256
accelerator = "tcg"
[workload]
kind = "memory"
[conditions.baseline]
[conditions.taken]
bursts = { for_ms = 40, every_ms = 60 }
"#;

const ALL: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL];

/// When a signal is sent: so long after something of the run is seen.
struct Moment {
    name: &'static str,
    within_ms: u64,
    seen: fn(&Run) -> bool,
}

fn warden_is_there(run: &Run) -> bool {
    run.processes().iter().any(|process| process.is_warden())
}

fn machine_is_there(run: &Run) -> bool {
    run.processes().iter().any(|process| process.is_qemu())
}

fn second_machine_is_there(run: &Run) -> bool {
    run.processes().iter().filter(|process| process.is_qemu()).count() == 2
}

fn quota_is_in_force(run: &Run) -> bool {
    run.processes().iter().any(|process| process.is_pinned())
        && (!run.cgroups().is_empty() || !quotas_are_permitted())
}

fn everything_is_in_force(run: &Run) -> bool {
    second_machine_is_there(run) && quota_is_in_force(run) && run.processes().iter().any(|one| one.is_hog())
}

fn bursts_are_in_force(run: &Run) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", run.pid())).into_iter().flatten().flatten();
    let mut names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.any(|name| name.starts_with("burst ")) && machine_is_there(run)
}

fn first_run_has_ended(run: &Run) -> bool {
    run.said().contains(": run 1 of ")
}

/// The delays of one test.
struct Delays(u64, Box<dyn FnMut(u64) -> u64>);

impl Delays {
    fn new(test: &str) -> Delays {
        let seed = std::env::var("REPRIEVE_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
        println!("REPRIEVE_TEST_SEED={seed}");
        let mut rng = statistics::stream(seed, test);
        Delays(seed, Box::new(move |within_ms| rng.random_range(0..within_ms)))
    }
}

/// Starts a run, ends it by `signal` at the moment, and checks that nothing is left.
fn end_by(
    guests: &Guests,
    arguments: &[&str],
    signal: Signal,
    moment: &Moment,
    delays: &mut Delays,
) -> (Run, Ended) {
    let delay_ms = delays.1(moment.within_ms);
    let case = format!("{signal:?}, {delay_ms} ms after {}, seed {}", moment.name, delays.0);
    println!("{case}");
    let mut run = Run::start(guests, arguments);
    run.wait_until(moment.name, moment.seen);
    // What is looked for afterwards can be seen now.
    assert!(!run.leftovers().is_empty(), "{case}");
    std::thread::sleep(Duration::from_millis(delay_ms));
    run.signal(signal);
    let ended = run.wait_end();
    run.assert_nothing_is_left(&case);
    if signal == Signal::KILL {
        assert_eq!(ended.signal(), Some(9), "{case}");
        assert!(run.record().is_none(), "{case}");
    } else {
        assert_eq!(ended.code(), 1, "{case}: {}", ended.stderr);
        assert!(ended.stderr.ends_with("reprieve: interrupted\n"), "{case}: {}", ended.stderr);
    }
    (run, ended)
}

#[test]
fn before_and_while_the_guest_boots() {
    let Some(guests) = support::guests() else { return };
    let mut delays = Delays::new("boot");
    let start = Moment { name: "the warden's start", within_ms: 300, seen: warden_is_there };
    let boot = Moment { name: "the machine's start", within_ms: 2000, seen: machine_is_there };
    let deaf = [&QUOTA[..], &["--set", DEAF]].concat();
    for signal in ALL {
        end_by(&guests, &QUOTA, signal, &start, &mut delays);
        let (run, _) = end_by(&guests, &deaf, signal, &boot, &mut delays);
        assert!(run.record().is_none());
    }
}

#[test]
fn under_the_condition() {
    let Some(guests) = support::guests() else { return };
    let mut delays = Delays::new("condition");
    let force = Moment { name: "the quota is in force", within_ms: 1500, seen: quota_is_in_force };
    for signal in ALL.into_iter().chain([Signal::QUIT, Signal::USR1]) {
        end_by(&guests, &QUOTA, signal, &force, &mut delays);
    }
}

#[test]
fn with_hogs_and_a_neighbour() {
    let Some(guests) = support::guests() else { return };
    let mut delays = Delays::new("crowded");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crowded.toml");
    std::fs::write(&file, CROWDED).unwrap();
    let arguments = [file.to_str().unwrap()];
    let neighbour = Moment { name: "the neighbour's start", within_ms: 2000, seen: second_machine_is_there };
    let force = Moment { name: "everything is in force", within_ms: 1000, seen: everything_is_in_force };
    end_by(&guests, &arguments, Signal::KILL, &neighbour, &mut delays);
    end_by(&guests, &arguments, Signal::KILL, &force, &mut delays);
    end_by(&guests, &arguments, Signal::INT, &force, &mut delays);
}

#[test]
fn with_real_time_threads() {
    let Some(guests) = support::guests() else { return };
    if let Err(error) = reprieve_vm::bursts::try_permission() {
        eprintln!("skipped: {error}");
        return;
    }
    let mut delays = Delays::new("bursts");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bursts.toml");
    std::fs::write(&file, BURSTS).unwrap();
    let arguments = [file.to_str().unwrap()];
    let taken = Moment { name: "the first burst", within_ms: 500, seen: bursts_are_in_force };
    for signal in ALL {
        end_by(&guests, &arguments, signal, &taken, &mut delays);
    }
}

#[test]
fn the_finished_runs_of_an_interrupted_plan_are_kept() {
    let Some(guests) = support::guests() else { return };
    let mut delays = Delays::new("second run");
    let second = Moment { name: "the end of the first run", within_ms: 3000, seen: first_run_has_ended };
    // So many repetitions that the plan does not end before the signal comes, however late that is.
    let arguments = [&QUOTA[..], &["--set=run.window_ms=500", "--set=run.repeat=1000"]].concat();
    for signal in [Signal::INT, Signal::TERM] {
        let (run, ended) = end_by(&guests, &arguments, signal, &second, &mut delays);
        let record = run.record().expect("a record of the first run");
        let [study] = &record.studies[..] else { panic!("{}", record.studies.len()) };
        assert!(!study.observations.is_empty());
        assert_eq!(study.ended_early.as_deref(), Some("interrupted"));
        assert!(ended.stdout.contains("overcommitted"), "{}", ended.stdout);
        for output in ["page.html", "trace.pftrace"] {
            assert!(run.folder.path().join(output).metadata().unwrap().len() > 0, "{output}");
        }
    }
}

/// Any signal that may end a run, at any moment of it; `REPRIEVE_TEST_MOMENTS` says at how many.
#[test]
#[ignore = "a quarter of an hour: make signals"]
fn at_moments_by_chance() {
    let Some(guests) = support::guests() else { return };
    let mut delays = Delays::new("chance");
    let moments = std::env::var("REPRIEVE_TEST_MOMENTS").map_or(200, |text| text.parse().unwrap());
    let signals = [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::KILL,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::IO,
        Signal::POWER,
        Signal::XCPU,
        Signal::XFSZ,
        Signal::STKFLT,
    ];
    let any = Moment { name: "the warden's start", within_ms: 4000, seen: warden_is_there };
    for _ in 0..moments {
        let signal = signals[delays.1(signals.len() as u64) as usize];
        end_by(&guests, &QUOTA, signal, &any, &mut delays);
    }
}

/// The user who does not wait for the polite end is obeyed, and leaves nothing either.
#[test]
fn a_second_interrupt_ends_it_at_once() {
    let Some(guests) = support::guests() else { return };
    let mut run = Run::start(&guests, &QUOTA);
    run.wait_until("the quota is in force", quota_is_in_force);
    run.signal(Signal::INT);
    run.signal(Signal::INT);
    let ended = run.wait_end();
    run.assert_nothing_is_left("two interrupts");
    // Both may come before the first is looked at: the kernel then delivers one.
    assert!(ended.signal() == Some(2) || ended.code() == 1, "{}", ended.status);
}

/// A run that was killed together with its warden leaves a cgroup; the next one removes it, though it makes none itself and
/// does not even begin.
#[test]
fn the_next_run_removes_what_a_killed_run_and_warden_have_left() {
    if !quotas_are_permitted() {
        eprintln!("skipped: no CPU quotas");
        return;
    }
    let root = ProcRoot::default();
    // Killed, and not waited for: its parent, this test, does not care.
    let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
    let start_ticks = root.start_time_ticks(owner.id() as i32).unwrap();
    let cgroups = Cgroups::detect(&root).unwrap();
    let left = cgroups.path_of(&format!("{}-{start_ticks}-0", owner.id()));
    std::fs::create_dir(&left).unwrap();
    let run = || {
        let arguments = ["run", "rcu-control", "--on", "vm", "--set", "conditions.baseline.pcpus=[9999]"];
        Command::new(support::PROGRAM).args(arguments).output().unwrap()
    };
    let output = run();
    let stays = left.exists();
    owner.kill().unwrap();
    while !root.is_zombie(owner.id() as i32).unwrap() {
        std::thread::sleep(Duration::from_millis(5));
    }
    run();
    let goes = !left.exists();
    owner.wait().unwrap();
    let _ = std::fs::remove_dir(&left);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stays && goes, "while its owner lives it stays: {stays}; afterwards it goes: {goes}");
}
