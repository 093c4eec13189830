//! Every workload runs through the lab, and gives an observation with all that it must have.

mod support;

use reprieve_study::observation::{self, Observation, Provenance};
use reprieve_study::scenario::{GroundKind, Scenario};
use reprieve_study::{metric, overrides};
use reprieve_vm::parameters;
use support::{BOOT_LIMIT, Bench, STOP_LIMIT, text};

/// Metrics of any observed run of a workload that uses RCU.
const ALWAYS: [&str; 12] = [
    metric::GP_COUNT,
    metric::GP_MEAN,
    metric::GP_P99,
    metric::GP_MAX,
    metric::GP_COMPUTE,
    metric::KERNEL_CPU,
    metric::FOOTPRINT_PEAK,
    metric::SLAB_PEAK,
    metric::THROUGHPUT,
    metric::SYNC_MEAN,
    metric::CPU_SHARE,
    metric::OVERCOMMIT,
];
/// These may be 0.
const PRESENT: [&str; 6] = [
    metric::READER_PREEMPTIONS,
    metric::READER_PREEMPTIONS_LAST,
    metric::READER_HELD,
    metric::UNUSABLE_PEAK,
    metric::BACKLOG_PEAK,
    metric::IDLE_CPU,
];

fn scenario(workload: &str, condition: &str) -> Scenario {
    let text = format!(
        "name = 't'\ntitle = 't'\n[run]\nwarmup_ms = 500\nwindow_ms = 1500\n[guest]\naccelerator = 'tcg'\n\
         boot_limit_ms = {}\n[observe]\nsync_every_ms = 50\n[workload]\n{workload}\n[conditions.c]\n{condition}",
        BOOT_LIMIT.as_millis()
    );
    overrides::read(&text, Some(GroundKind::Vm), &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn run(bench: &Bench, workload: &str, condition: &str) -> Observation {
    let scenario = scenario(workload, condition);
    let mut step = |stage: &str| eprintln!("{stage}");
    let planned = scenario.plan().unwrap().remove(0);
    let observed = bench.lab.run(&planned, &mut step);
    observed.unwrap_or_else(|error| panic!("{error}"))
}

fn check(observation: &Observation) {
    eprintln!("{:#?}\n{:?}", observation.metrics, observation.provenance);
    let value = |metric: &str| *observation.metrics.get(metric).unwrap_or_else(|| panic!("no {metric}"));
    for metric in ALWAYS {
        assert!(value(metric) > 0.0, "{metric}: {}", value(metric));
    }
    for metric in PRESENT {
        assert!(value(metric) >= 0.0, "{metric}: {}", value(metric));
    }
    assert!(value(metric::GP_MAX) >= value(metric::GP_MEAN));
    assert!(value(metric::READER_PREEMPTIONS) >= value(metric::READER_PREEMPTIONS_LAST));
    assert!((0.0..=1.0).contains(&value(metric::UNUSABLE_PEAK)));
    assert!((0.0..=1.0).contains(&value(metric::KERNEL_CPU)) && value(metric::OVERCOMMIT) >= 1.0);
    assert!(value(metric::FOOTPRINT_PEAK) < (512 << 20) as f64);
    let durations = &observation.distributions[observation::GP_DURATIONS];
    let provenance = &observation.provenance;
    assert_eq!((durations.count() + provenance.missed_gps) as f64, value(metric::GP_COUNT));
    assert!(observation.distributions[observation::SYNC_LATENCIES].count() > 0);
    assert_eq!((provenance.vcpus.len(), provenance.accelerator.as_str()), (2, "tcg"));
    assert!(provenance.samples > 0 && observation.trace.is_some());
}

#[test]
fn memory() {
    let Some(bench) = Bench::open() else { return };
    let observation = run(&bench, "kind = 'memory'", "");
    check(&observation);
    assert!(observation.metrics[metric::BACKLOG_PEAK] > 0.0);
    assert!(observation.provenance.window_ns >= 1_500_000_000);
}

/// Workers on the first vCPUs, and a process on the last one that never enters the kernel by itself.
#[test]
fn memory_beside_a_process_that_computes() {
    let Some(bench) = Bench::open() else { return };
    let observation = run(&bench, "kind = 'memory'\ncomputing = 1", "");
    check(&observation);
    assert!(observation.metrics[metric::COMPUTING_LOOPS] > 0.0);
    let mut booted = bench.boot(2, 512, "");
    for refused in ["idle computing=3", "idle computing=1 computing_from=2", "idle computing=65"] {
        let error = booted.link.start(refused).unwrap_err().to_string();
        assert!(error.contains("computing"), "{error}");
    }
    booted.link.start("memory workers=1 computing=1 computing_from=1").unwrap();
    let children = text(&mut booted, "/proc/1/task/1/children");
    let child = children.split_whitespace().next().expect("the process that computes");
    let mut allowed = || {
        let status = text(&mut booted, &format!("/proc/{child}/status"));
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_string()
    };
    // It pins itself once it has begun.
    assert!((0..1000).any(|_| allowed() == "1"), "{}", allowed());
    assert_eq!(children.split_whitespace().count(), 1);
    let first = booted.link.mark().unwrap();
    booted.link.let_work(std::time::Duration::from_millis(300)).unwrap();
    let last = booted.link.mark().unwrap();
    assert!(last["loops"] > first["loops"] && last["ops"] > first["ops"], "{first:?} {last:?}");
    let outcome = booted.link.stop(STOP_LIMIT).unwrap();
    assert!(outcome.result["loops"] >= last["loops"]);
    assert_eq!(text(&mut booted, "/proc/1/task/1/children"), "", "it has ended");
    booted.link.start("idle").unwrap();
    assert!(!booted.link.mark().unwrap().contains_key("loops"));
}

/// A guest of which one vCPU has no tick boots and is measured, but for what it does not tell.
#[test]
fn boot_parameters_that_the_kernel_takes() {
    let Some(bench) = Bench::open() else { return };
    let words = "nohz_full=1 rcutree.use_softirq=0 rcutree.kthread_prio=10 preempt=full";
    let observation = run(&bench, "kind = 'memory'", &format!("set = {{ guest.append = '{words}' }}"));
    let Provenance { settings, notes, .. } = &observation.provenance;
    let expected =
        ["preempt is full", "nohz_full is 1", "rcutree.use_softirq is N", "rcutree.kthread_prio is 10"];
    assert_eq!(settings, &expected);
    let metrics = &observation.metrics;
    for present in [metric::GP_MEAN, metric::THROUGHPUT, metric::BACKLOG_PEAK, metric::FOOTPRINT_PEAK] {
        assert!(metrics[present] > 0.0, "{present}");
    }
    for absent in [metric::SYNC_MEAN, metric::KERNEL_CPU, metric::IDLE_CPU] {
        assert!(!metrics.contains_key(absent), "{absent}");
    }
    assert!(notes.iter().any(|note| note.contains("membarrier")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("nohz_full")), "{notes:?}");
}

#[test]
fn boot_parameters_that_the_kernel_passes_over() {
    let Some(bench) = Bench::open() else { return };
    let mut booted =
        bench.boot(2, 256, "nonsense rcutree.nonsense=1 preempt=wrongly rcutree.kthread_prio=10");
    let mut refusal = |words: &str| match parameters::taken(&mut booted.link, words) {
        Ok(settings) => panic!("{settings:?}"),
        Err(error) => error.to_string(),
    };
    assert_eq!(refusal("nonsense"), "guest.append: nonsense: the guest's kernel does not know it");
    assert!(refusal("rcutree.nonsense=1").contains("no such parameter"));
    // Kernels differ in whether they pass over the word or over its value.
    let wrongly = refusal("preempt=wrongly");
    assert!(wrongly.contains("does not know it") || wrongly.contains("preempt is"), "{wrongly}");
    assert!(refusal("rcutree.kthread_prio=11").ends_with("in the guest's kernel rcutree.kthread_prio is 10"));
    assert!(refusal("rcu_nocbs=all").contains("offloads no callbacks"));
    assert!(refusal("nohz_full=1").contains("nohz_full"));
    let settings = parameters::taken(&mut booted.link, "rcutree.kthread_prio=10 quiet").unwrap();
    assert!(settings.lines.contains(&"rcutree.kthread_prio is 10".to_string()), "{settings:?}");
    assert!(!settings.has_tickless);
}

/// The other kernel that results are recorded with: another scheduler, another allocator, another layout.
#[test]
fn memory_on_a_newer_kernel() {
    let Some(bench) = Bench::open_series("6.12") else { return };
    let observation = run(&bench, "kind = 'memory'", "");
    check(&observation);
    assert!(observation.provenance.kernel.starts_with("6.12."), "{}", observation.provenance.kernel);
    assert!(observation.metrics[metric::BACKLOG_PEAK] > 0.0);
}

/// With a hog on each pCPU, so that conditions are in force: whatever else runs, vCPUs then wait for a pCPU.
#[test]
fn clone_beside_hogs() {
    let Some(bench) = Bench::open() else { return };
    let observation = run(&bench, "kind = 'clone'", "hogs = 1");
    check(&observation);
    assert!(observation.provenance.vcpus.iter().all(|vcpu| vcpu.delay_ns > 0));
    assert!(observation.metrics[metric::OVERCOMMIT] > 1.0);
}

#[test]
fn postmark() {
    let Some(bench) = Bench::open() else { return };
    let workload = "kind = 'postmark'\nprocesses = 2\nfiles = 2000\ntransactions = 4000";
    check(&run(&bench, workload, ""));
}

/// Not of any scenario, so started by hand.
#[test]
fn idle() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, "");
    booted.link.start("idle sync_every_us=20000").unwrap();
    let before = bench.reader(&booted).gp();
    booted.link.let_work(std::time::Duration::from_millis(1500)).unwrap();
    let after = bench.reader(&booted).gp();
    let outcome = booted.link.stop(STOP_LIMIT).unwrap();
    assert_eq!((outcome.result["ops"], outcome.sync_note.as_deref()), (0, None));
    // Each sample is one synchronize_rcu(): no fewer grace periods ended than samples, one after another, were
    // taken, but for those before and after the two looks.
    let ended = after.sequence.wrapping_sub(before.sequence) & (u64::MAX >> 2);
    eprintln!("{ended} grace periods, {} samples", outcome.sync_ns.len());
    assert!(!outcome.sync_ns.is_empty() && ended > 0);
}

#[test]
fn a_guest_refuses_what_it_does_not_know() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(1, 256, "");
    for command in ["nonsense", "memory object_bytes=many", "memory burst", "memory object_bytes=99999999"] {
        let error = booted.link.start(command).unwrap_err();
        eprintln!("{error}");
    }
    assert!(booted.link.read_file("/no/such/file").is_err());
    // And goes on.
    booted.link.start("idle").unwrap();
    assert_eq!(booted.link.mark().unwrap()["ops"], 0);
    booted.link.stop(STOP_LIMIT).unwrap();
    booted.link.power_off().unwrap();
    assert!(booted.machine.wait_end(STOP_LIMIT));
}
