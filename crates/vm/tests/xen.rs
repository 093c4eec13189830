//! Real Xen: a small run, twice. Downloads about 75 MB the first time, and takes two or three minutes.

mod support;

use reprieve_linux::proc::{ForeignCpu, ProcRoot, allowed_cpus};
use reprieve_study::ground::{Ground, Progress};
use reprieve_study::observation::Observation;
use reprieve_study::timeline::{Events, Track};
use reprieve_study::{Scenario, metric, overrides};
use reprieve_vm::{VmError, XenGround};

const SAMPLES: f64 = 300.0;

const SCENARIO: &str = "
    name = 'small'
    title = 'a small run'
    ground = 'xen'
    [run]
    repeat = 1
    warmup_ms = 100
    window_ms = 60_000
    [guest]
    vcpus = 1
    memory_mib = 128
    [host]
    scheduler = 'credit'
    [host.xen]
    slice_ms = 5
    trace = true
    [workload]
    kind = 'wakeup'
    sleep_us = 1_000
    sleep_spread = 0.5
    work_us = 200
    samples = 300
    [conditions.hog]
    spinners = 1
";

struct Told(Vec<String>);

impl Progress for Told {
    fn preparing(&mut self, what: &str) {
        eprintln!("{what}");
    }
    fn running(&mut self, _: usize, _: usize, _: &str, stage: &str) {
        eprintln!("{stage}");
        self.0.push(stage.to_string());
    }
    fn ended(&mut self, _: usize, _: usize, _: &Observation) {}
    fn warning(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn scenario() -> Scenario {
    overrides::read(SCENARIO, None, &[]).unwrap()
}

/// A run and the stages that were told, or `None` where the machine lacks what it takes.
fn run() -> Option<(Observation, Vec<String>)> {
    let mut told = Told(Vec::new());
    let cache = support::cache().root().to_path_buf();
    let mut finished = XenGround { host: support::host(), cache }.run(scenario(), &mut told);
    match finished.error {
        Some(error @ (VmError::Missing { .. } | VmError::Image(_))) => return support::skip(&error),
        Some(error) => panic!("{error}"),
        None => {}
    }
    Some((finished.observations.remove(0), told.0))
}

fn track<'a>(out: &'a Observation, name: &str) -> &'a Track {
    let tracks = &out.trace.as_ref().unwrap().tracks;
    tracks.iter().find(|track| track.name == name).unwrap_or_else(|| panic!("no track {name}"))
}

fn slices(track: &Track) -> Vec<(u64, u64, &str)> {
    let Events::Slices(slices) = &track.events else { panic!("a counter") };
    slices.iter().map(|(span, name)| (span.start_ns, span.end_ns, name.as_str())).collect()
}

/// The guest's clock and Xen's trace tell the same: at each wake-up that it reports late, its vCPU has waited.
fn stalls_are_waits(out: &Observation) {
    let stalls = slices(track(out, "stalls"));
    let waits = slices(track(out, "vCPU 0"));
    for (start, end, _) in &stalls {
        let waited =
            waits.iter().filter(|(from, to, what)| *what == "descheduled" && from < end && to > start);
        let waited_ns: u64 = waited.map(|(from, to, _)| to.min(end) - from.max(start)).sum();
        assert!(waited_ns * 10 > (end - start) * 7, "late for {} ns, waited {waited_ns} ns", end - start);
    }
}

/// CPU time of this process and of its children that have ended, ns.
fn spent_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
    // proc_pid_stat(5): utime, stime, cutime and cstime, in ticks of 10 ms.
    fields.skip(11).take(4).map(|ticks| ticks.parse::<u64>().unwrap() * 10_000_000).sum()
}

/// Where nobody else computes on this machine. Until a spinner runs, Xen's pCPU falls idle now and then, and QEMU's main
/// loop moves the clock on: a little otherwise where its threads have to wait for a CPU.
const FOREIGN_MOST: f64 = 0.05;

#[test]
fn a_run_gives_the_same_again_bit_for_bit() {
    let proc_root = ProcRoot::default();
    let foreign_cpu = ForeignCpu::open(&proc_root, &allowed_cpus().unwrap()).unwrap();
    let before_ns = spent_ns();
    let Some((first, stages)) = run() else { return };
    assert_eq!(first.metrics[metric::LATENCY_COUNT], SAMPLES);
    assert!(stages.iter().any(|stage| stage == "measures"), "{stages:?}");
    // One pCPU: what the spinner did not get, the guest had, or dom0 and idleness.
    let share = first.metrics[metric::SPINNER_CPU] + first.metrics[metric::CPU_SHARE];
    assert!((0.9..=1.0).contains(&share), "{share}");
    let running = slices(track(&first, "vCPU 0"));
    assert!(running.iter().filter(|(.., what)| *what == "running").count() as f64 >= SAMPLES);
    stalls_are_waits(&first);

    let (second, _) = run().unwrap();
    stalls_are_waits(&second);
    if first == second {
        return;
    }
    let foreign = foreign_cpu.share(&proc_root, spent_ns() - before_ns).unwrap();
    if foreign > FOREIGN_MOST {
        eprintln!("not compared: others had {:.0} % of this machine", 100.0 * foreign);
        return;
    }
    // A host that is slowed down from outside does not always show it, so two runs in five have to be the same.
    let mut seen = vec![first, second];
    for _ in 0..3 {
        let (next, _) = run().unwrap();
        if seen.contains(&next) {
            return;
        }
        seen.push(next);
    }
    let metrics: Vec<_> = seen.iter().map(|run| &run.metrics).collect();
    panic!("no two runs were the same: {metrics:#?}");
}
