//! fio runs in a real guest, bursts take its pCPUs away, the daemon moves its jobs, and what it recorded is decided the same
//! again. The daemon is this workspace's own program, which `cargo test --workspace` builds; where it is not built a test says
//! so and passes, unless REPRIEVE_TEST_REQUIRE_PEERS is set.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reprieve_study::observation::Observation;
use reprieve_study::scenario::{GroundKind, Scenario};
use reprieve_study::{metric, overrides};
use reprieve_vm::fio::{self, Bench as FioBench};
use reprieve_vm::lab::Booted;
use reprieve_vm::stimulus::Stimulus;
use reprieve_vm::{VmError, bursts};
use serde_json::Value;
use support::{BOOT_LIMIT, Bench, programs};

const PATIENCE: Duration = Duration::from_secs(120);
const BURSTS: &str = "bursts = { for_ms = 25, every_ms = 60, jitter_ms = 5 }";

fn scenario(workload: &str, conditions: &str) -> Scenario {
    let text = format!(
        "name = 't'\ntitle = 't'\n[run]\nrepeat = 1\nwarmup_ms = 1500\nwindow_ms = 1000\n[guest]\n\
         accelerator = 'tcg'\nmemory_mib = 512\nboot_limit_ms = {}\n[observe]\nsync_every_ms = 0\n[workload]\n\
         {workload}\n[conditions.alone]\n{conditions}",
        BOOT_LIMIT.as_millis()
    );
    overrides::read(&text, Some(GroundKind::Vm), &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Whether this machine lets us have real-time threads.
fn is_permitted() -> bool {
    bursts::try_permission().inspect_err(|error| eprintln!("skipped: {error}")).is_ok()
}

fn value(observation: &Observation, id: &str) -> f64 {
    *observation.metrics.get(id).unwrap_or_else(|| panic!("no {id} of {}", observation.condition))
}

/// Policies and scheduling classes of the threads of this process's children, by thread name.
fn real_time_threads(pid: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let real_time = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        // proc_pid_stat(5): field 41 is the policy, and field 3 comes first here; 1 is SCHED_FIFO.
        (rest.split(' ').nth(38)? == "1").then(|| name.to_string())
    });
    real_time.collect()
}

#[test]
fn one_boot_serves_a_repetition_and_replays_decide_the_same() {
    if !is_permitted() {
        return;
    }
    let conditions = format!(
        "[conditions.pinned]\n{BURSTS}\nset = {{ workload.placement = 'pinned' }}\n\
         [conditions.migrate]\n{BURSTS}\nset = {{ workload.placement = 'migrate' }}\n\
         [conditions.oracle]\n{BURSTS}\nset = {{ workload.placement = 'oracle' }}"
    );
    let scenario = scenario("kind = 'fio'\naccess = 'random'\nblock_kib = 8\njobs = 2", &conditions);
    let Some(paths) = daemon(&scenario) else { return };
    let Some(bench) = Bench::open_for_fio(paths) else { return };
    let (mut runs, mut boots) = (FioBench::default(), 0);
    for planned in scenario.plan().unwrap() {
        let mut step = |stage: &str| boots += u32::from(stage == "boots");
        let observed = runs.run(&bench.lab, &planned, &mut step).unwrap_or_else(|error| panic!("{error}"));
        eprintln!("{}: {:#?}\n{:?}", observed.condition, observed.metrics, observed.provenance);
        assert!(
            value(&observed, metric::THROUGHPUT) > 0.0 && value(&observed, metric::COMPUTING_LOOPS) > 0.0
        );
        let bytes = value(&observed, metric::IO_RATE) / value(&observed, metric::THROUGHPUT);
        // In a window of a second; the kernel sums up reads and sectors one after the other, while reads go on: one may be
        // missing on each vCPU at both ends.
        let blur = 4.0 * 8192.0 / value(&observed, metric::THROUGHPUT);
        assert!((bytes - 8192.0).abs() <= blur, "{bytes} bytes a read");
        let moves = matches!(observed.condition.as_str(), "migrate" | "oracle");
        for id in [metric::BEATS_CPU, metric::MOVES, metric::LATE_BEATS, metric::REPLAYED] {
            assert_eq!(observed.metrics.contains_key(id), moves, "{id} of {}", observed.condition);
        }
        if moves {
            assert!(value(&observed, metric::BEATS_CPU) > 0.0);
            assert!(value(&observed, metric::LATE_BEATS) > 0.0, "bursts make beats late");
        }
    }
    assert_eq!(boots, 1);
    runs.conclude().unwrap();
    let ours = real_time_threads(std::process::id() as i32);
    assert!(ours.iter().all(|name| !name.starts_with("burst")), "{ours:?}");
}

/// The program whose daemon runs in guests, in the list that an image takes.
fn daemon(scenario: &Scenario) -> Option<Vec<std::path::PathBuf>> {
    match fio::needed(scenario, &support::host()) {
        Ok(paths) => {
            assert_eq!(paths, [programs().join("reprieve")]);
            Some(paths)
        }
        Err(error @ VmError::Missing { .. }) => {
            assert!(std::env::var_os("REPRIEVE_TEST_REQUIRE_PEERS").is_none(), "{error}");
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A guest in which fio runs, bursts take its vCPUs away in turn, and the daemon moves its job.
struct Disturbed {
    booted: Booted,
    /// The job's status file.
    job: String,
}

impl Disturbed {
    /// The CPUs that the job may run on, those that are offline included.
    fn mask(&mut self) -> String {
        let status = support::text(&mut self.booted, &self.job);
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap_or_else(|| panic!("{status}")).trim().to_string()
    }

    /// Waits until the job's mask is one of these.
    fn wait_mask(&mut self, wanted: &[&str]) {
        let since = Instant::now();
        loop {
            let mask = self.mask();
            if wanted.contains(&mask.as_str()) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "its mask is {mask}, and was never one of {wanted:?}");
            self.booted.link.let_work(Duration::from_millis(5)).unwrap();
        }
    }

    fn reads(&mut self) -> u64 {
        self.booted.link.mark().unwrap()["ops"]
    }

    fn set_online(&mut self, vcpu: usize, online: bool) {
        let file = format!("/sys/devices/system/cpu/cpu{vcpu}/online");
        self.booted.link.append(&file, if online { "1" } else { "0" }).unwrap();
    }
}

/// What the daemon in the guest has said so far: the first event of that name.
fn said(booted: &mut Booted, event: &str) -> Option<Value> {
    let bytes = booted.link.read_whole(fio::command::SAID, 1 << 20).unwrap();
    let events = String::from_utf8(bytes).unwrap();
    // The last line may not be whole yet.
    events
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|said| said["event"] == event)
}

#[test]
fn a_vcpu_goes_offline_and_comes_back_while_the_daemon_binds_to_it() {
    if !is_permitted() {
        return;
    }
    let conditions = format!("[conditions.pull]\n{BURSTS}\nset = {{ workload.placement = 'pull' }}");
    let scenario = scenario("kind = 'fio'\naccess = 'random'\nblock_kib = 4\nrecord = false", &conditions);
    let Some(paths) = daemon(&scenario) else { return };
    let Some(bench) = Bench::open_for_fio(paths) else { return };
    let planned = scenario.plan().unwrap().into_iter().find(|run| run.condition == "pull").unwrap();
    let job = planned.scenario.workload.fio().unwrap();
    let spec = bench.lab.machine_spec(&planned.scenario);
    let booted = bench.lab.boot(&spec, &bench.lab.pcpus, BOOT_LIMIT);
    let mut booted = booted.unwrap_or_else(|error| panic!("{error}"));
    Stimulus::pin(&booted.machine, &bench.lab.pcpus).unwrap();
    booted.link.start(&fio::command::start(job, 2)).unwrap();
    booted.link.start_beside(&fio::command::daemon(job, "reprieve").unwrap()).unwrap();
    let condition = &planned.scenario.conditions["pull"];
    let timing = bursts::Timing::from_now(1);
    let bursts =
        Stimulus::apply(condition, &booted.machine, &bench.lab.pcpus, &bench.lab.host, timing).unwrap();
    let since = Instant::now();
    let task = loop {
        if let Some(task) = said(&mut booted, "task") {
            break task;
        }
        assert!(since.elapsed() < PATIENCE, "no task is looked after");
        booted.link.let_work(Duration::from_millis(50)).unwrap();
    };
    let mut guest = Disturbed { booted, job: format!("/proc/{}/task/{}/status", task["pid"], task["tid"]) };
    guest.wait_mask(&["0"]);
    guest.wait_mask(&["1"]);

    guest.set_online(1, false);
    // The kernel widens the mask of one that is bound there when it wakes it up.
    guest.wait_mask(&["0-1", "0"]);
    let before = guest.reads();
    let masks: BTreeSet<String> = (0..200).map(|_| guest.mask()).collect();
    assert!(masks.iter().all(|mask| mask == "0-1" || mask == "0"), "{masks:?}");
    assert!(guest.reads() > before, "the job goes on");

    guest.set_online(1, true);
    guest.wait_mask(&["1"]);
    drop(bursts);
    guest.booted.link.stop(support::STOP_LIMIT).unwrap();
    let restored = said(&mut guest.booted, "restored").expect("it says what it gave back");
    assert!(restored["failed"] == 0 && restored["gone"] == 0, "{restored}");
}

/// What a burst takes nobody else can give: of two vCPUs that are always busy, each has at most what is left.
#[test]
fn bursts_take_their_share_from_any_workload() {
    if !is_permitted() {
        return;
    }
    let Some(bench) = Bench::open() else { return };
    let scenario = scenario("kind = 'memory'", "[conditions.taken]\nbursts = { for_ms = 30, every_ms = 60 }");
    let planned = scenario.plan().unwrap().into_iter().find(|run| run.condition == "taken").unwrap();
    let observed = bench.lab.run(&planned, &mut |stage| eprintln!("{stage}")).unwrap();
    for vcpu in &observed.provenance.vcpus {
        let share = vcpu.run_ns as f64 / observed.provenance.window_ns as f64;
        assert!(share < 0.55, "{share} of a pCPU of which half is taken");
    }
    assert!(value(&observed, metric::OVERCOMMIT) > 1.5);
}

#[test]
fn devices_are_real_time_while_a_session_lasts_and_fio_ends_with_its_workload() {
    if !is_permitted() {
        return;
    }
    let Some(bench) = Bench::open_for_fio(Vec::new()) else { return };
    let scenario = scenario("kind = 'fio'\naccess = 'sequential'\nblock_kib = 4", "");
    let spec = bench.lab.machine_spec(&scenario);
    let mut booted =
        bench.lab.boot(&spec, &bench.lab.pcpus, BOOT_LIMIT).unwrap_or_else(|error| panic!("{error}"));
    let others = booted.machine.other_tids(&bench.lab.host.proc_root).unwrap();
    assert!(others.contains(&booted.machine.pid()) && others.len() > 1, "{others:?}");
    assert!(real_time_threads(booted.machine.pid()).is_empty());
    let raised = bursts::raise(&others).unwrap();
    assert_eq!(real_time_threads(booted.machine.pid()).len(), others.len());
    drop(raised);
    assert!(real_time_threads(booted.machine.pid()).is_empty());
    // A program beside it must be one, and there must be something to run beside.
    let refused = booted.link.start_beside("name=reprieve").unwrap_err().to_string();
    assert!(refused.contains("nothing runs"), "{refused}");
    for _ in 0..2 {
        booted.link.start(&fio::command::start(scenario.workload.fio().unwrap(), 2)).unwrap();
        let refused = booted.link.start_beside("name=other").unwrap_err().to_string();
        assert!(refused.contains("/programs/bin/other"), "{refused}");
        booted.link.let_work(Duration::from_millis(300)).unwrap();
        booted.link.stop(support::STOP_LIMIT).unwrap();
    }
    let listing = support::text(&mut booted, "/proc/loadavg");
    // Nothing but the runner, and what the kernel does, is left to run: RUNNING/ALL.
    let running = listing.split_ascii_whitespace().nth(3).and_then(|word| word.split_once('/')).unwrap().0;
    assert!(running.parse::<u32>().unwrap() <= 2, "{listing}");
}
