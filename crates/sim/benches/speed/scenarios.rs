//! The scenarios of the real guests, simulated: seconds of theirs in a second of ours, and the memory of a large one.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use reprieve_sim::ground::{self, Tapes};
use reprieve_study::ground::Progress;
use reprieve_study::scenario::{GroundKind, Workload};
use reprieve_study::units::MILLISECOND_NS;
use reprieve_study::{Observation, Scenario, overrides};

use crate::figure::{Bar, Figure, ROUNDS};

/// Argument that makes this program run the large guest and say how much memory that took.
pub const LARGE_GUEST: &str = "--large-guest";

/// Scenarios whose guests are those of the records: 2 vCPUs, as fast as under emulation.
const SCENARIOS: [&str; 4] = ["rcu-conformance", "rcu-memory", "rcu-clone", "rcu-postmark"];
const AS_RECORDED: [&str; 3] = ["guest.speed=1.0", "host.pcpus=2", "run.repeat=1"];

/// The large guest: 64 vCPUs, 64 GB, the memory microbenchmark for a second in which no grace period ends, because a
/// vCPU is paused: objects fill half of the memory, and all their callbacks wait.
const LARGE: [&str; 8] = [
    "guest.vcpus=64",
    "guest.memory_mib=65536",
    "host.pcpus=64",
    "run.repeat=1",
    "run.warmup_ms=0",
    "run.window_ms=1000",
    "conditions.paused-100-ms.pauses=[{ vcpu = 1, at_ms = 10, for_ms = 990 }]",
    "run.conditions=['paused-100-ms']",
];
const MIB: f64 = (1 << 20) as f64;

/// For each scenario, simulated seconds in a second, of its slowest condition.
pub fn simulated_seconds() -> Vec<Figure> {
    SCENARIOS.into_iter().map(simulated_seconds_of).collect()
}

fn simulated_seconds_of(name: &str) -> Figure {
    let scenario = read(name, GroundKind::Vm, &AS_RECORDED);
    let conditions: Vec<String> = scenario.chosen().map(|(condition, _)| condition.clone()).collect();
    let rate = |condition: &String| {
        let mut scenario = scenario.clone();
        scenario.run.conditions = vec![condition.clone()];
        simulated_in_a_second(scenario)
    };
    let slowest = |_| conditions.iter().map(rate).fold(f64::INFINITY, f64::min);
    Figure {
        name: format!("{name}, 2 vCPUs, slowest of {} conditions: simulated time", conditions.len()),
        unit: "s/s",
        bar: Some(Bar::AtLeast(10.0)),
        rounds: (0..ROUNDS).map(slowest).collect(),
    }
}

/// Simulated seconds of a scenario's run in a second. A workload of fixed size first prepares for a time that is not
/// known here; it counts as 0.
fn simulated_in_a_second(scenario: Scenario) -> f64 {
    let warmup_ns = match &scenario.workload {
        Workload::Postmark { .. } => 0,
        _ => scenario.run.warmup_ms * MILLISECOND_NS,
    };
    let start = Instant::now();
    let observations = observe(scenario);
    let simulated_ns: u64 = observations.iter().map(|one| warmup_ns + one.provenance.window_ns).sum();
    simulated_ns as f64 / start.elapsed().as_nanos() as f64
}

/// Resident memory of a process that simulates the large guest, at its peak.
pub fn resident() -> Figure {
    let program = std::env::current_exe().expect("this program has a path");
    let child = Command::new(program).arg(LARGE_GUEST).output().expect("this program starts itself");
    let said = String::from_utf8_lossy(&child.stdout);
    let kib: f64 = said.trim().parse().unwrap_or_else(|_| panic!("the large guest: {child:?}"));
    Figure {
        name: "64 vCPUs with 64 GB, no grace period ends for 1 s: resident memory".into(),
        unit: "MiB",
        bar: Some(Bar::AtMost(1024.0)),
        rounds: vec![kib * 1024.0 / MIB],
    }
}

/// Simulates the large guest, then says this process's peak resident memory in KiB (`VmHWM` of Linux).
pub fn large_guest() {
    observe(read("rcu-memory", GroundKind::Sim, &LARGE));
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says how much memory was used");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM is a line of it");
    println!("{}", peak.trim().trim_end_matches(" kB"));
}

fn read(name: &str, ground: GroundKind, assignments: &[&str]) -> Scenario {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name).with_extension("toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let assignments: Vec<String> = assignments.iter().map(|one| one.to_string()).collect();
    overrides::read(&text, Some(ground), &assignments).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn observe(scenario: Scenario) -> Vec<Observation> {
    let finished = ground::run(scenario, &Tapes::new(), 1, &|| false, &mut Silent);
    assert!(finished.error.is_none(), "{:?}", finished.error);
    finished.observations
}

struct Silent;

impl Progress for Silent {
    fn preparing(&mut self, _: &str) {}
    fn running(&mut self, _: usize, _: usize, _: &str, _: &str) {}
    fn ended(&mut self, _: usize, _: usize, _: &Observation) {}
    fn warning(&mut self, _: &str) {}
}
