//! A synthetic record as the simulator would give it: causes left out, sweeps, many vCPUs.

use reprieve_study::observation::{Observation, VcpuTime};
use reprieve_study::scenario::PlannedRun;
use reprieve_study::{Provenance, Record, Study, overrides};

use super::{Noise, WINDOW_NS, observation, record_of};

const SCENARIO: &str = r#"
name = "synthetic-simulation"
title = "SYNTHETIC: as if it were simulated"
[run]
repeat = 3
attribute = ["overcommitted"]
[guest]
vcpus = 8
memory_mib = 4096
speed = 12.0
[host]
scheduler = "cfs"
[workload]
kind = "memory"
[conditions.baseline]
label = "each vCPU has a pCPU to itself"
[conditions.overcommitted]
label = "neighbour VMs with busy vCPUs"
overcommit = 2.0
[conditions.spike]
label = "a neighbour VM is busy once"
spikes = [{ at_ms = 500, for_ms = 100, vcpus = 8 }]
[sweeps.overcommit]
label = "overcommitment"
key = "conditions.overcommitted.overcommit"
unit = "busy vCPUs per pCPU"
values = [1, 1.25, 1.5, 2, 2.5, 3, 4]
conditions = ["overcommitted"]
[sweeps.rate]
label = "rate of deferred frees"
key = "workload.pause_us"
unit = "us pause after each burst"
values = [0, 10, 30, 100, 300, 1000]
conditions = ["baseline", "overcommitted"]
[published]
source = "Prasad, Gopinath, McKenney, The RCU-Reader Preemption Problem in VMs, USENIX ATC 2017, pp. 265-270"
condition = "overcommitted"
ratios = [{ metric = "throughput_per_s", ratio = 0.3327, printed = "-66.73 %" }]
"#;

/// The record.
pub fn record() -> Record {
    let scenario = overrides::read(SCENARIO, None, &[]).unwrap();
    let runs = scenario.plan().unwrap();
    let observations = runs.iter().enumerate().map(|(number, run)| simulated(number as u64, run)).collect();
    record_of(vec![Study::new(scenario, observations, None)])
}

fn simulated(number: u64, run: &PlannedRun) -> Observation {
    let severity = match (&run.sweep, run.condition.as_str()) {
        (Some(point), _) if point.sweep == "overcommit" => point.value,
        (_, name) if name.starts_with("baseline") => 1.0,
        (_, "overcommitted-without-cpu-share") => 1.5,
        (_, "overcommitted-without-lock-holder-preemption") => 2.4,
        (_, "overcommitted-without-reader-preemption") => 2.6,
        _ => 3.0,
    };
    let pause = run.sweep.as_ref().filter(|point| point.sweep == "rate").map_or(0.0, |point| point.value);
    let mut made = observation(&run.condition, run.repetition, severity, 1.0, &mut Noise(number * 17 + 3));
    for metric in ["footprint_peak_bytes", "backlog_peak_count", "throughput_per_s"] {
        *made.metrics.get_mut(metric).unwrap() /= 1.0 + pause / 50.0;
    }
    made.metrics.remove("observer_cpu_share");
    made.sweep = run.sweep.clone();
    made.holdouts =
        (0..8).map(|vcpu| 60 + if run.condition == "spike" && vcpu == 3 { 240 } else { vcpu }).collect();
    let run_ns = (WINDOW_NS as f64 / severity) as u64;
    made.provenance = Provenance {
        ground: "sim, reprieve 0.0.0 (synthetic)".into(),
        seed: 1,
        window_ns: WINDOW_NS,
        vcpus: (0..8).map(|vcpu| VcpuTime { run_ns: run_ns + vcpu, delay_ns: WINDOW_NS - run_ns }).collect(),
        samples: 16_000,
        events: 41_000_000,
        result_hash: format!("{:016x}", number * 7919),
        ..Provenance::default()
    };
    made
}
