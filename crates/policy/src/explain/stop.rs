//! Stops of the whole machine, as a pause by the hypervisor.
//!
//! A task that had just begun to wait for its vCPU when the machine stopped seems to have waited all the time: the kernel books the stop as
//! waiting. If it was a beat thread, its vCPU seems to have been on. So a stop is a long time off that each vCPU has, or that its beat
//! thread waited for.

use std::borrow::Cow;

use super::PAUSE_NS;
use crate::fingerprint::{self, Off};
use crate::sample::{Sample, VcpuSample};

/// A wait that is at least this part of the stop, in per cent, may be the stop.
const SAME_PERCENT: u64 = 95;

/// The samples, in the order of time, with stops as what they were: time off of each vCPU, and no time that anybody waited.
pub(super) fn put_right<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Vec<Cow<'a, Sample>> {
    let mut samples: Vec<Cow<'a, Sample>> = samples.into_iter().map(Cow::Borrowed).collect();
    let mut last: Option<Off> = None;
    for at in 0..samples.len() {
        // One stop can show in this sample for one vCPU, and in the sample before or after it for another.
        let near = at.saturating_sub(1)..(at + 2).min(samples.len());
        let found = stop(&samples[at], &samples[near.clone()]);
        if let Some(stop) = found.filter(|stop| last.is_none_or(|last| !overlap(last, *stop))) {
            last = Some(stop);
            let mut near: Vec<&mut Sample> = samples[near].iter_mut().map(Cow::to_mut).collect();
            give_to_all(&mut near, stop);
            forget_waits(&mut near, stop);
        }
    }
    samples
}

/// The stop that ends in this sample, if one does.
fn stop(sample: &Sample, near: &[Cow<Sample>]) -> Option<Off> {
    let vcpus = &sample.vcpus;
    let offs = vcpus.iter().flat_map(|vcpu| &vcpu.offs).copied();
    let longest = offs.max_by_key(Off::length_ns).filter(|off| off.length_ns() >= PAUSE_NS)?;
    // Samples have their vCPUs in the order of numbers.
    let of_one = |sample: &'_ Cow<Sample>, vcpu: usize| {
        sample.vcpus.binary_search_by_key(&vcpu, |seen| seen.vcpu).ok()
    };
    let has_it = |vcpu: &VcpuSample| {
        let mut seen = near.iter().filter_map(|sample| Some(&sample.vcpus[of_one(sample, vcpu.vcpu)?]));
        // Waits are a sum: only where they are rare, one wait is likely.
        seen.any(|seen| sample.real_time && is_as_long(seen.kept_ns, longest) || is_off(seen, longest))
    };
    (vcpus.len() > 1 && vcpus.iter().all(has_it)).then_some(longest)
}

/// A vCPU that was on, as it seems, was off.
fn give_to_all(near: &mut [&mut Sample], stop: Off) {
    let mut seen: Vec<&mut VcpuSample> = near.iter_mut().flat_map(|sample| &mut sample.vcpus).collect();
    seen.sort_by_key(|seen| seen.vcpu);
    for of_one in seen.chunk_by_mut(|a, b| a.vcpu == b.vcpu) {
        let waited = of_one.iter().position(|seen| is_as_long(seen.kept_ns, stop));
        if let Some(waited) = waited.filter(|_| !of_one.iter().any(|seen| is_off(seen, stop))) {
            of_one[waited].kept_ns = of_one[waited].kept_ns.saturating_sub(stop.length_ns());
            of_one[waited].offs.push(stop);
        }
    }
}

/// Subtracts the stop from each kind of waiting, in the sample with most of it, if that is long enough.
fn forget_waits(near: &mut [&mut Sample], stop: Off) {
    let waits: [fn(&mut Sample) -> &mut Option<u64>; 3] = [
        |sample| &mut sample.cpu_wait_ns,
        |sample| &mut sample.memory_wait_ns,
        |sample| &mut sample.kthread_wait_ns,
    ];
    for wait in waits {
        let booked = near.iter_mut().filter_map(|sample| wait(sample).as_mut());
        if let Some(most) = booked.max().filter(|most| is_as_long(**most, stop)) {
            *most = most.saturating_sub(stop.length_ns());
        }
    }
}

fn overlap(a: Off, b: Off) -> bool {
    !fingerprint::both_off(&[a], &[b]).is_empty()
}

/// True if the vCPU was off for nearly all of the stop.
fn is_off(seen: &VcpuSample, stop: Off) -> bool {
    let in_it = |off: &Off| fingerprint::both_off(&[*off], &[stop]).iter().map(Off::length_ns).sum();
    seen.offs.iter().any(|off| is_as_long(in_it(off), stop))
}

/// True if this much time is nearly the whole stop.
fn is_as_long(ns: u64, stop: Off) -> bool {
    ns >= stop.length_ns() / 100 * SAME_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP_NS: u64 = 3 * PAUSE_NS;
    const STOP: Off = Off { since_ns: 1_000, back_ns: 1_000 + STOP_NS };

    fn sample(offs: Option<Off>, kept_ns: u64, cpu_wait_ns: u64) -> Sample {
        let vcpu = |vcpu, offs: Option<Off>, kept_ns| VcpuSample {
            vcpu,
            beats: 5,
            offs: offs.into_iter().collect(),
            kept_ns,
            ..VcpuSample::default()
        };
        let vcpus = vec![vcpu(0, offs, 7), vcpu(1, None, kept_ns)];
        let cpu_wait_ns = Some(cpu_wait_ns);
        Sample { span_ns: 10 * PAUSE_NS, vcpus, cpu_wait_ns, real_time: true, ..Sample::default() }
    }

    fn put_right_of(samples: &[Sample]) -> (Vec<Off>, u64, u64) {
        let samples = put_right(samples);
        let of = |of: fn(&Sample) -> u64| samples.iter().map(|sample| of(sample)).sum();
        let offs = samples.iter().flat_map(|sample| sample.vcpus[1].offs.clone()).collect();
        (offs, of(|sample| sample.vcpus[1].kept_ns), of(|sample| sample.cpu_wait_ns.unwrap_or(0)))
    }

    #[test]
    fn a_task_that_waited_while_the_machine_stood_still_did_not_wait_for_another() {
        let stopped = sample(Some(STOP), STOP_NS + 5, STOP_NS + 9);
        assert_eq!(put_right_of(&[stopped]), (vec![STOP], 5, 9));
        // The next sample may hold what this one lacks.
        let samples = [sample(Some(STOP), 3, 0), sample(None, STOP_NS + 5, STOP_NS + 9), sample(None, 0, 1)];
        assert_eq!(put_right_of(&samples), (vec![STOP], 8, 10));
        // So may the one before.
        let samples = [sample(None, STOP_NS + 5, STOP_NS + 9), sample(Some(STOP), 3, 0)];
        assert_eq!(put_right_of(&samples), (vec![STOP], 8, 9));
        // And have the rest of the same stop.
        let rest = Off { since_ns: STOP.since_ns + 9, ..STOP };
        let samples = [sample(Some(STOP), STOP_NS, STOP_NS), sample(Some(rest), STOP_NS, STOP_NS)];
        assert_eq!(put_right_of(&samples), (vec![STOP], STOP_NS, STOP_NS));
    }

    #[test]
    fn a_shorter_wait_is_one_for_the_guest_s_own_tasks() {
        let samples = [sample(Some(STOP), STOP_NS / 2, STOP_NS)];
        assert_eq!(put_right_of(&samples), (vec![], STOP_NS / 2, STOP_NS));
        // Without real-time priority, so are many that add up.
        let samples = [Sample { real_time: false, ..sample(Some(STOP), STOP_NS, STOP_NS) }];
        assert_eq!(put_right_of(&samples), (vec![], STOP_NS, STOP_NS));
    }
}
