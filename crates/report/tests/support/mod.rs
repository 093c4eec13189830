//! Synthetic records for tests and the example. The numbers are made up to look plausible; they were measured
//! nowhere and must never be shown as results.

// Each test program uses a part.
#[allow(dead_code)]
pub mod simulated;
#[allow(dead_code)]
pub mod threads;

use reprieve_study::observation::{
    BACKLOG, FOOTPRINT, GP_DURATIONS, GP_OVER_TIME, Observation, Standing, UNUSABLE, VcpuTime,
};
use reprieve_study::units::MIB;
use reprieve_study::{Distribution, GroundKind, Provenance, Record, Scenario, Study, Timeline, overrides};

const WINDOW_NS: u64 = 8_000_000_000;

const SCENARIO: &str = r#"
name = "synthetic-memory"
title = "SYNTHETIC: memory that waits for grace periods"
[run]
repeat = 3
[workload]
kind = "memory"
[conditions.baseline]
label = "one vCPU per pCPU, nothing else"
[conditions.overcommitted]
label = "vCPU 1 gets a fifth of a pCPU"
quota = [{ vcpu = 1, percent = 20 }]
[conditions.neighbours]
label = "two busy VMs on the same pCPUs"
neighbours = 2
[published]
source = "Prasad, Gopinath, McKenney, The RCU-Reader Preemption Problem in VMs, USENIX ATC 2017, pp. 265-270"
condition = "overcommitted"
ratios = [
    { metric = "gp_mean_ns", ratio = 1.3026, printed = "+30.26 %" },
    { metric = "footprint_peak_bytes", ratio = 1.5, printed = "+50 %" },
    { metric = "unusable_index_peak", ratio = 2.5532, printed = "+155.32 %" },
    { metric = "throughput_per_s", ratio = 1.1, printed = "+10 %" },
    { metric = "gp_compute_ns", ratio = 2.9, printed = "x2.9" },
    { metric = "reader_preemptions_count", ratio = 6.33, printed = "x6.33" },
]
statements = ["Footprint spikes of several hundred MB for a 100 ms grace-period delay."]
fitted = ["the quota", "the length of the window"]
"#;

/// Numbers that look random and are the same everywhere (Knuth's MMIX generator).
struct Noise(u64);

impl Noise {
    /// Between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn around(&mut self, value: f64) -> f64 {
        value * (0.94 + 0.12 * self.next())
    }
}

/// A synthetic record of one scenario with three conditions.
pub fn record() -> Record {
    let scenario = overrides::read(SCENARIO, Some(GroundKind::Vm), &[]).unwrap();
    record_of(vec![study(scenario, 1.0)])
}

/// The same with every grace period `factor` times as long.
#[allow(dead_code)]
pub fn slower(factor: f64) -> Record {
    let scenario = overrides::read(SCENARIO, Some(GroundKind::Vm), &["guest.vcpus=4".into()]).unwrap();
    record_of(vec![study(scenario, factor)])
}

/// A record of these studies.
pub fn record_of(studies: Vec<Study>) -> Record {
    Record {
        schema_version: 1,
        program: "reprieve 0.0.0 (synthetic)".into(),
        command: "reprieve run synthetic-memory --on vm --set run.repeat=3".into(),
        studies,
    }
}

fn study(scenario: Scenario, factor: f64) -> Study {
    let mut observations = Vec::new();
    for repetition in 0..3 {
        for (index, (name, severity)) in
            [("baseline", 1.0), ("overcommitted", 6.0), ("neighbours", 2.5)].into_iter().enumerate()
        {
            let mut noise = Noise(repetition * 31 + index as u64 * 7 + 1);
            observations.push(observation(name, repetition as u32, severity, factor, &mut noise));
        }
    }
    observations[1].standing = Standing::Kept;
    let mut redone = observations[0].clone();
    redone.standing = Standing::Redone;
    observations.insert(0, redone);
    Study::new(scenario, observations, None)
}

fn observation(name: &str, repetition: u32, severity: f64, factor: f64, noise: &mut Noise) -> Observation {
    let mut durations = Distribution::default();
    let mut timelines: [Timeline; 4] = Default::default();
    let [footprint, unusable, backlog, gps] = &mut timelines;
    let (mut t_ns, mut waiting, mut longest) = (0, 0.0, 0.0_f64);
    while t_ns < WINDOW_NS - 600_000_000 {
        let held = if noise.next() < 0.08 { 60e6 * (severity - 1.0) * noise.next() } else { 0.0 };
        let duration_ns = (6e6 + 9e6 * noise.next() + held) * factor;
        for step in 0..4 {
            waiting += duration_ns / 4.0 * 4e-4;
            let at = t_ns + (duration_ns / 4.0) as u64 * step;
            footprint.push(at, 140.0 * MIB as f64 + waiting * 1024.0 + noise.next() * 1e6);
            backlog.push(at, waiting);
            unusable.push(at, (0.12 + 0.04 * severity + waiting * 3e-6 + 0.02 * noise.next()).min(1.0));
        }
        t_ns += duration_ns as u64;
        gps.push(t_ns, duration_ns);
        durations.record(duration_ns as u64);
        longest = longest.max(duration_ns);
        waiting *= 0.3;
    }
    let peak = |timeline: &Timeline| timeline.values.iter().copied().fold(0.0, f64::max);
    let mut metrics: Vec<(&str, f64)> = vec![
        ("gp_mean_ns", durations.mean_ns().unwrap()),
        ("gp_p50_ns", durations.quantile_ns(0.5).unwrap() as f64),
        ("gp_p99_ns", durations.quantile_ns(0.99).unwrap() as f64),
        ("gp_max_ns", longest),
        ("gp_count", durations.count() as f64),
        ("reader_preemptions_count", noise.around(40.0 * severity).round()),
        ("reader_preemptions_last_count", noise.around(9.0 * severity).round()),
        ("reader_held_ns", noise.around(3e8 * severity)),
        ("footprint_peak_bytes", peak(footprint)),
        ("unusable_index_peak", peak(unusable)),
        ("backlog_peak_count", peak(backlog)),
        ("throughput_per_s", noise.around(400_000.0 / severity)),
        ("vcpu_cpu_share", noise.around(0.9 / severity)),
        ("overcommit_ratio", noise.around(severity)),
        ("observer_cpu_share", noise.around(0.11)),
    ];
    if name != "baseline" {
        metrics.push(("stalls_count", 3.0));
    }
    let keys = [FOOTPRINT, UNUSABLE, BACKLOG, GP_OVER_TIME].map(String::from);
    Observation {
        condition: name.into(),
        repetition,
        standing: Standing::Accepted,
        provenance: provenance(severity),
        metrics: metrics.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
        distributions: [(GP_DURATIONS.to_string(), durations)].into(),
        timelines: keys.into_iter().zip(timelines).collect(),
        case: None,
        sweep: None,
        holdouts: Vec::new(),
        stalls: Vec::new(),
        trace: None,
        tape: None,
        replayed: None,
    }
}

fn provenance(severity: f64) -> Provenance {
    let run_ns = WINDOW_NS / severity as u64;
    Provenance {
        ground: "vm, QEMU 0.0 (synthetic)".into(),
        accelerator: "tcg".into(),
        accelerator_reason: "synthetic: no guest was ever started".into(),
        kernel: "6.1.0-synthetic".into(),
        host_kernel: "6.12.0-synthetic".into(),
        host_pcpus: 4,
        seed: 1,
        window_ns: WINDOW_NS,
        foreign_cpu_percent: severity / 3.0,
        scheduling_source: "synthetic".into(),
        vcpus: vec![
            VcpuTime { run_ns: WINDOW_NS, delay_ns: 0 },
            VcpuTime { run_ns, delay_ns: WINDOW_NS - run_ns },
        ],
        samples: 16_000,
        missed_gps: 2,
        notes: if severity > 5.0 { vec!["CPU quota by cgroup v1".into()] } else { Vec::new() },
        ..Provenance::default()
    }
}
