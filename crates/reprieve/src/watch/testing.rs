//! Seconds of a VM that is quiet, or limited by its host.

use reprieve_policy::explain::Recent;
use reprieve_policy::fingerprint::Off;
use reprieve_policy::sample::{Memory, Sample, VcpuSample};

use super::model::{Model, Source};
use super::moment::Moment;
use super::verdict;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
/// The beginning of the clock of the day: 2026-11-25T20:00:00Z.
pub const DAY_NS: u64 = 1_795_636_800 * SECOND;

/// The second that ends at `at`: two vCPUs, and nothing is wrong.
pub fn quiet(at: u64) -> Sample {
    let vcpu = |vcpu| VcpuSample { vcpu, beats: 10, idle_ns: Some(900 * MS), ..VcpuSample::default() };
    Sample {
        at_ns: at * SECOND,
        day_ns: DAY_NS + at * SECOND,
        span_ns: SECOND,
        beat_ns: 156 * MS,
        vcpus: vec![vcpu(0), vcpu(1)],
        cpu_wait_ns: Some(0),
        memory_wait_ns: Some(0),
        grace_periods_ns: vec![20 * MS],
        memory: Some(Memory { unreclaimable_bytes: 64 << 20, ..Memory::default() }),
        ..Sample::default()
    }
}

/// The same with vCPU 1 limited to 20 ms of every 100 ms, seen closely or not. It goes off a bit earlier or later each time.
pub fn quota(at: u64, is_close: bool) -> Sample {
    let mut sample = quiet(at);
    sample.beat_ns = if is_close { MS } else { 156 * MS };
    let begin_ns = (at - 1) * SECOND;
    let off = |period: u64| {
        let late_ns = (at * 10 + period) * 7 % 11 * MS / 2;
        let back_ns = begin_ns + (period + 1) * 100 * MS;
        Off { since_ns: back_ns - 82 * MS + late_ns, back_ns }
    };
    sample.vcpus[0].beats = if is_close { 1000 } else { 10 };
    sample.vcpus[1].beats = if is_close { 200 } else { 10 };
    sample.vcpus[1].offs = (0..10).map(off).collect();
    sample.vcpus[1].idle_ns = Some(0);
    sample.grace_periods_ns = vec![120 * MS];
    sample
}

/// The last seconds after these samples.
pub fn recent(samples: impl Iterator<Item = Sample>) -> Recent {
    let mut recent = Recent::default();
    samples.for_each(|sample| recent.push_with(|into| *into = sample));
    recent
}

/// A live model that has seen these samples.
pub fn live(samples: impl Iterator<Item = Sample>) -> Model {
    let (mut recent, mut model) = (Recent::default(), Model::new(Source::Live));
    for sample in samples {
        recent.push_with(|into| *into = sample.clone());
        let mut moment = Moment::of(&sample, model.newest());
        moment.told = Some(verdict::told(&recent));
        model.push(moment);
    }
    model
}
