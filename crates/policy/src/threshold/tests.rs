//! Conditions are read, measured and refused.

use super::*;
use crate::explain::{Confidence, Finding, Verdict};
use crate::fingerprint::Off;
use crate::sample::VcpuSample;

const MS: u64 = 1_000_000;

fn samples() -> Vec<Sample> {
    let vcpu = |vcpu, off_ms: u64| VcpuSample {
        vcpu,
        beats: 1000,
        offs: vec![Off { since_ns: 0, back_ns: off_ms * MS }],
        steal_ns: Some(off_ms * MS),
        ..VcpuSample::default()
    };
    let sample = |number: u64| Sample {
        span_ns: 1000 * MS,
        beat_ns: MS,
        vcpus: vec![vcpu(0, 100), vcpu(1, 300)],
        grace_periods_ns: (1..=10).map(|n| (number * 10 + n) * MS).collect(),
        io_wait_ns: Some(number * 100 * MS),
        stepped_ns: -(number as i64) * 3_000_000,
        memory: Some(Memory { slab_bytes: number << 20, ..Memory::default() }),
        ..Sample::default()
    };
    (0..10).map(sample).collect()
}

fn measured(text: &str, samples: &[Sample]) -> Option<Measured> {
    let threshold: Threshold = text.parse().unwrap();
    threshold.crossed(samples.iter(), &State::Quiet, &mut Vec::new())
}

#[test]
fn each_metric_is_measured_over_all_samples() {
    let samples = samples();
    let of = |text: &str| measured(text, &samples);
    assert_eq!(of("gp_p99>98ms"), Some(Measured::Time(99e6)));
    assert_eq!(of("gp_p99 > 99 ms"), None);
    assert_eq!(of("gp_max>=0.1s"), Some(Measured::Time(100e6)));
    assert_eq!(of("off>29%"), Some(Measured::Percent(30.0)));
    assert_eq!(of("steal<=20%"), Some(Measured::Percent(20.0)));
    assert_eq!(of("io_wait>44.9%"), Some(Measured::Percent(45.0)));
    assert_eq!(of("step>=27ms"), Some(Measured::Time(27e6)));
    assert_eq!(of("slab>8MiB"), Some(Measured::Bytes((9 << 20) as f64)));
    assert_eq!(of("available<1GiB"), Some(Measured::Bytes(0.0)));
    assert_eq!(of("cpu_wait>=0%"), None, "no sample tells");
    assert_eq!(measured("gp_p99<1s", &[]), None);
}

#[test]
fn an_open_grace_period_counts() {
    let mut samples = samples();
    samples[9].open_grace_period_ns = 5_000 * MS;
    assert_eq!(measured("gp_max>1s", &samples), Some(Measured::Time(5e9)));
}

#[test]
fn beats_that_are_rare_are_counted() {
    let mut samples = samples();
    for sample in &mut samples {
        sample.beat_ns = 50 * MS;
        sample.vcpus.iter_mut().for_each(|vcpu| vcpu.beats = 20);
    }
    // One late beat of 20.
    assert_eq!(measured("off>0%", &samples), Some(Measured::Percent(5.0)));
}

#[test]
fn a_verdict_is_compared_by_the_names_of_its_causes() {
    let finding = |cause| Finding { cause, confidence: Confidence::Sure, lost_permille: 0 };
    let findings = vec![finding(Cause::OwnCpu), finding(Cause::Contention { turns: None })];
    let state = State::Known(Verdict { findings });
    let threshold: Threshold = "verdict=contention".parse().unwrap();
    let crossed = |state: &State| threshold.crossed([].iter(), state, &mut Vec::new());
    assert_eq!(crossed(&state), Some(Measured::Cause("contention")));
    assert_eq!((crossed(&State::Quiet), threshold.metric()), (None, "verdict"));
}

#[test]
fn what_is_no_condition_is_refused_with_a_way_out() {
    let said = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
    assert!(said("gp>50ms").ends_with(
        "there are gp_p99, gp_max, off, steal, cpu_wait, memory_wait, io_wait, kthread_wait, throttled, step, \
         slab, available, verdict"
    ));
    assert!(said("gp_p99").contains("as in gp_p99>50ms") && said(&"x".repeat(100)).contains("64"));
    assert!(said("gp_p99>50").contains("ns, us, ms, s") && said("off>NaN%").contains('%'));
    assert!(said("slab>5MB").contains("MiB") && said("steal>-1%").contains('%'));
    assert!(said("verdict=me").contains("busy-neighbour") && said("verdict>quota").ends_with("needs ="));
    assert!(said("off=5%").ends_with("> >= < <="));
}
