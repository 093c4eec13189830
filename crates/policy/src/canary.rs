//! When to look closely: a cheap look all the time, and a dear one once something is wrong.
//!
//! A collector that beats 6 times a second costs next to nothing, but cannot tell a quota from a neighbour. The canary says
//! from its samples when 1,000 beats a second are worth their cost. It errs on the side of looking: a close look for nothing
//! costs little, and one that is missing leaves a latency without a cause. No threshold is above that of
//! [`crate::explain`]; they are estimates of our own.

use crate::explain::OVERLOAD_PERMILLE;
use crate::fingerprint::Off;
use crate::sample::{Sample, VcpuSample};

/// For how long to look closely after the last alarming sample, ns: as long as a verdict takes.
pub const CLOSE_NS: u64 = 10_000_000_000;
/// Beats at this distance, ns, or a shorter one, are a close look.
pub const CLOSE_BEAT_NS: u64 = 2_000_000;
/// A part of the time that is alarming, in thousandths: of a vCPU off, of steal, or of throttling.
const OFF_PERMILLE: u64 = 20;
/// The same for beats, memory and RCU's kthread that wait. Tasks that wait for a CPU are alarming from [`OVERLOAD_PERMILLE`] on: below
/// that [`crate::explain`] names no cause for them, so a close look would find nothing, and begin again for ever.
const WAITING_PERMILLE: u64 = 50;
/// A late beat below this is not worth a look, ns: the usual noise of a busy host.
const NOISE_NS: u64 = 2_000_000;
/// A grace period that is alarming, ns.
const LONG_GP_NS: u64 = 100_000_000;
/// A step of the clock that is alarming, ns.
const STEP_NS: u64 = 50_000_000;
/// A suspension that is alarming, ns. Clocks are read one after the other, so after the first one a few ns seem to be added or taken.
const SUSPENDED_NS: u64 = 1_000_000;

/// True if something is wrong in this sample.
pub fn is_alarming(sample: &Sample) -> bool {
    let much = |ns: u64, permille: u64| ns > sample.span_ns / 1000 * permille;
    let vcpu = sample.vcpus.iter().any(|vcpu| {
        let seen_ns = vcpu.offs.iter().map(|off| seen_ns(off, sample.beat_ns));
        // The number of late beats over that of all: what part of the time the vCPU is off.
        let late = seen_ns.clone().filter(|ns| *ns > NOISE_NS).count() as u64 + vcpu.lost;
        late * 1000 > vcpu.beats * OFF_PERMILLE
            || much(seen_ns.fold(0, u64::saturating_add), OFF_PERMILLE)
            || much(vcpu.kept_ns, WAITING_PERMILLE)
            || much(vcpu.steal_ns.unwrap_or(0), OFF_PERMILLE)
    });
    let waits = [sample.memory_wait_ns, sample.kthread_wait_ns];
    let longest_ns =
        sample.grace_periods_ns.iter().copied().max().unwrap_or(0).max(sample.open_grace_period_ns);
    vcpu || waits.into_iter().flatten().any(|ns| much(ns, WAITING_PERMILLE))
        || (silent(sample).next().is_none() && much(sample.cpu_wait_ns.unwrap_or(0), OVERLOAD_PERMILLE))
        || much(sample.throttled_ns.unwrap_or(0), OFF_PERMILLE)
        || longest_ns >= LONG_GP_NS
        || sample.stepped_ns.unsigned_abs() >= STEP_NS
        || sample.suspended_ns >= SUSPENDED_NS
}

/// The vCPUs on which no beat ran in this sample, though several were due: a real-time task has them, the host does not run them, or
/// they are offline. Their beats wait for a CPU, so what the kernel says of waiting tasks says nothing meanwhile.
pub fn silent(sample: &Sample) -> impl Iterator<Item = usize> {
    let is_due = sample.beat_ns > 0 && sample.span_ns > sample.beat_ns.saturating_mul(2);
    let is_silent = move |vcpu: &&VcpuSample| is_due && vcpu.beats == 0 && vcpu.offs.is_empty();
    sample.vcpus.iter().filter(is_silent).map(|vcpu| vcpu.vcpu)
}

/// How long a time off was, ns. A sample places its beginning halfway between two beats. If these are far apart, only the time
/// after the beat that was due is sure.
pub fn seen_ns(off: &Off, beat_ns: u64) -> u64 {
    match beat_ns <= CLOSE_BEAT_NS {
        true => off.length_ns(),
        false => off.length_ns().saturating_sub(beat_ns / 2),
    }
}

/// How long a vCPU was off in this sample, ns. Beats that are rare show it by how many of them are late: most times off fall
/// between two.
pub fn off_ns(sample: &Sample, vcpu: &VcpuSample) -> u64 {
    if sample.beat_ns <= CLOSE_BEAT_NS {
        return vcpu.off_ns();
    }
    let late = vcpu.offs.len() as u64 + vcpu.lost;
    let ns = u128::from(sample.span_ns) * u128::from(late) / u128::from(vcpu.beats.max(late).max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Remembers for how long to look closely.
#[derive(Clone, Copy, Debug, Default)]
pub struct Canary {
    until_ns: u64,
    /// vCPUs that were silent in the last sample.
    silent: usize,
}

impl Canary {
    /// Takes in a sample, and says whether to look closely from now on.
    pub fn is_close_after(&mut self, sample: &Sample) -> bool {
        // One that stays silent, perhaps because it is offline, is no news.
        let silent = silent(sample).count();
        let is_news = silent > std::mem::replace(&mut self.silent, silent);
        if is_news || is_alarming(sample) {
            self.until_ns = sample.at_ns.saturating_add(CLOSE_NS);
        }
        sample.at_ns < self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn quiet(at_ns: u64) -> Sample {
        let vcpu = VcpuSample { beats: 20, steal_ns: Some(0), ..VcpuSample::default() };
        Sample {
            at_ns,
            span_ns: 1000 * MS,
            beat_ns: 156 * MS,
            vcpus: vec![vcpu],
            throttled_ns: Some(0),
            cpu_wait_ns: Some(20 * MS),
            memory_wait_ns: Some(0),
            grace_periods_ns: vec![20 * MS],
            ..Sample::default()
        }
    }

    #[test]
    fn each_kind_of_trouble_alarms() {
        assert!(!is_alarming(&quiet(0)) && !is_alarming(&Sample::default()));
        let with = |change: &dyn Fn(&mut Sample)| {
            let mut sample = quiet(0);
            change(&mut sample);
            is_alarming(&sample)
        };
        // The collector places the beginning of a time off halfway between two beats.
        let late_by = |ns: u64| {
            with(&|sample: &mut Sample| {
                sample.vcpus[0].offs = vec![Off { since_ns: 0, back_ns: 78 * MS + ns }]
            })
        };
        assert!(late_by(3 * MS) && !late_by(MS));
        assert!(with(&|sample: &mut Sample| sample.vcpus[0].steal_ns = Some(30 * MS)));
        assert!(with(&|sample: &mut Sample| sample.vcpus[0].kept_ns = 60 * MS));
        assert!(with(&|sample: &mut Sample| sample.throttled_ns = Some(30 * MS)));
        let tasks_wait = |ns| with(&|sample: &mut Sample| sample.cpu_wait_ns = Some(ns));
        assert!(!tasks_wait(290 * MS) && tasks_wait(310 * MS), "less is no cause for explain either");
        assert!(with(&|sample: &mut Sample| sample.memory_wait_ns = Some(60 * MS)));
        assert!(with(&|sample: &mut Sample| sample.open_grace_period_ns = 100 * MS));
        assert!(with(&|sample: &mut Sample| sample.stepped_ns = -60 * MS as i64));
        assert!(with(&|sample: &mut Sample| sample.suspended_ns = MS));
        assert!(!with(&|sample: &mut Sample| sample.suspended_ns = 99));
    }

    #[test]
    fn a_vcpu_that_falls_silent_alarms_once() {
        let silent_at = |seconds: u64| {
            let mut sample = quiet(seconds * 1000 * MS);
            // Its beat waits for a CPU, and is a task, too.
            (sample.vcpus[0].beats, sample.cpu_wait_ns) = (0, Some(1000 * MS));
            sample
        };
        let mut canary = Canary::default();
        assert!(!canary.is_close_after(&quiet(1)));
        assert!(canary.is_close_after(&silent_at(2)));
        assert!((3..12).all(|at| canary.is_close_after(&silent_at(at))));
        assert!((12..40).all(|at| !canary.is_close_after(&silent_at(at))));
        assert!(!canary.is_close_after(&quiet(40_000 * MS)) && canary.is_close_after(&silent_at(41)));
    }

    #[test]
    fn it_looks_on_for_as_long_as_a_verdict_takes() {
        let mut canary = Canary::default();
        assert!(!canary.is_close_after(&quiet(0)));
        let alarming = Sample { suspended_ns: 5 * MS, ..quiet(1000 * MS) };
        assert!(canary.is_close_after(&alarming));
        assert!(canary.is_close_after(&quiet(10_999 * MS)));
        assert!(!canary.is_close_after(&quiet(11_000 * MS)));
    }
}
