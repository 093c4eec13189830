//! A synthetic record as the ground of real threads would give it: many schemes, a sweep of readers.

use reprieve_study::observation::{Observation, Standing};
use reprieve_study::scenario::PlannedRun;
use reprieve_study::{Provenance, Record, Study, Workload, overrides};

use super::{Noise, record_of};

const HEAD: &str = r#"
name = "synthetic-threads"
title = "SYNTHETIC: as if real threads had run"
ground = "threads"
[run]
repeat = 3
window_ms = 1500
warmup_ms = 300
[workload]
kind = "delete-free"
scheme = "first"
[sweeps.readers]
label = "readers that share a CPU"
key = "workload.readers"
unit = "readers per core"
values = [1, 2, 4, 8]
[published]
source = "Faster memory reclamation with DPDK RCU (Arm). FOSDEM 2022"
condition = "token"
ratios = [{ metric = "delay_mean_ns", ratio = 0.49, printed = "41 to 61 % less" }]
"#;

/// Schemes with their median delay under 8 readers; none frees nothing.
const SCHEMES: [(&str, Option<f64>); 13] = [
    ("first", Some(154e6)),
    ("second", Some(120e6)),
    ("token", Some(66e6)),
    ("token-thread", Some(65e6)),
    ("epoch", Some(150e6)),
    ("hazard", Some(1.2e3)),
    ("prompt", Some(21e3)),
    ("prompt-too", Some(22e3)),
    ("deadline", Some(2e6)),
    ("late", Some(1.5e9)),
    ("lazy", Some(154e6)),
    ("lazier", Some(154e6)),
    ("none", None),
];

/// The record.
pub fn record() -> Record {
    let mut text = HEAD.to_string();
    for (scheme, _) in SCHEMES {
        text += &format!("[conditions.{scheme}]\nlabel = \"the scheme {scheme}\"\n");
        text += &format!("set = {{ 'workload.scheme' = '{scheme}' }}\n");
    }
    let scenario = overrides::read(&text, None, &[]).unwrap();
    let runs = scenario.plan().unwrap();
    let observations = runs.iter().enumerate().map(|(number, run)| observed(number as u64, run)).collect();
    record_of(vec![Study::new(scenario, observations, None)])
}

fn observed(number: u64, run: &PlannedRun) -> Observation {
    let Workload::DeleteFree(asked) = &run.scenario.workload else { panic!("another workload") };
    let mut noise = Noise(number * 31 + 5);
    // The machine is twice as slow in the second repetition: what is taken within a repetition does not see it.
    let slow = if run.repetition == 1 { 2.0 } else { 1.0 };
    let (_, delay) = SCHEMES.iter().find(|(name, _)| *name == run.condition).unwrap();
    let mut metrics = vec![
        ("deletes_per_s", 5_000.0),
        ("writer_cost_ns", noise.around(5_000.0 * slow)),
        ("lookup_cost_ns", noise.around(if delay.is_some() { 100.0 } else { 80.0 } * slow)),
        ("garbage_peak_count", delay.map_or(9_000.0, |ns| (ns * 5e-6).round())),
        ("garbage_peak_bytes", delay.map_or(9_000.0, |ns| (ns * 5e-6).round()) * 64.0),
    ];
    if let Some(delay) = delay {
        let delay = noise.around(delay * slow * f64::from(asked.readers) / 8.0);
        metrics.extend([("delay_p50_ns", delay), ("delay_mean_ns", delay * 1.02)]);
        metrics.extend([("delay_p99_ns", delay * 1.5), ("delay_max_ns", delay * 2.0)]);
    }
    if run.condition.ends_with("thread") {
        metrics.push(("background_cost_ns", noise.around(30_000.0 * slow)));
    }
    Observation {
        condition: run.condition.clone(),
        repetition: run.repetition,
        standing: Standing::Accepted,
        case: run.case.clone(),
        sweep: run.sweep.clone(),
        provenance: Provenance {
            ground: "threads".into(),
            host_kernel: "6.12.0-synthetic".into(),
            host_pcpus: 2,
            seed: 1,
            window_ns: 1_500_000_000,
            foreign_cpu_percent: 0.5,
            notes: vec![format!("library of {} 1.0", if delay.is_some() { "all" } else { "none" })],
            ..Provenance::default()
        },
        metrics: metrics.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
        distributions: Default::default(),
        timelines: Default::default(),
        holdouts: Vec::new(),
        stalls: Vec::new(),
        trace: None,
        tape: None,
        replayed: None,
    }
}
