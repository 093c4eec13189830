//! Whether a sample from a file can be one: whatever judges it may rely on its limits.

use reprieve_policy::fingerprint::Off;
use reprieve_policy::sample::{Deferred, Sample, SlabGrowth, VcpuSample};

/// The latest time, ns: 9 years after boot.
const MOST_NS: u64 = 1 << 58;
/// The longest sample and the longest wait in it, ns: 13 days. A writer that is stopped makes a long one.
const MOST_SPAN_NS: u64 = 1 << 50;
/// The most of what a kernel counts in a sample.
const MOST_COUNT: u64 = 1 << 50;
/// Most vCPUs.
const MOST_VCPUS: usize = 1024;
/// Most names of tasks or functions, slab caches, and grace periods in a sample, each. The collector keeps 1,024 names, and as
/// many grace periods.
const MOST_LISTED: usize = 4096;
/// A beat is late at most once in this time, ns: half of the time between two beats of a close look.
const LEAST_OFF_NS: u64 = 500_000;
/// A short sample may have this many times off: twice as many as a collector keeps while the recorder is kept from running.
const WAITING_OFFS: u64 = 8192;
/// Most bytes of a name of a task, function or slab cache.
const MOST_NAME_BYTES: usize = 1024;
/// A time off ends at most so long after its sample, ns: the recorder can be kept from running between the two.
const SLACK_NS: u64 = 60_000_000_000;
/// The highest number of a vCPU.
const HIGHEST_VCPU: usize = 8192;

/// Whether all numbers are within their limits, and times off in order.
pub(crate) fn is_sane(sample: &Sample) -> bool {
    let waits = [
        sample.throttled_ns,
        sample.cpu_wait_ns,
        sample.memory_wait_ns,
        sample.io_wait_ns,
        sample.kthread_wait_ns,
    ];
    sample.at_ns <= MOST_NS
        && sample.span_ns <= MOST_SPAN_NS.min(sample.at_ns)
        && sample.beat_ns <= MOST_SPAN_NS
        && sample.suspended_ns <= MOST_NS
        && sample.open_grace_period_ns <= MOST_NS
        && are_sane(&sample.grace_periods_ns)
        && waits.into_iter().flatten().all(|ns| ns <= MOST_SPAN_NS)
        && sample.deferred.as_ref().is_none_or(is_sane_deferred)
        && are_named(&sample.in_the_way, MOST_NS)
        && sample.slabs.len() <= MOST_LISTED
        && sample.slabs.iter().all(|slab| is_short(&slab.cache))
        && sample.stalls.max(sample.lockups).is_none_or(|count| count <= MOST_COUNT)
        && sample.vcpus.len() <= MOST_VCPUS
        && sample.vcpus.is_sorted_by(|one, next| one.vcpu < next.vcpu)
        && sample.vcpus.iter().all(|vcpu| is_sane_vcpu(vcpu, sample))
}

fn are_sane(grace_periods_ns: &[u64]) -> bool {
    grace_periods_ns.len() <= MOST_LISTED && grace_periods_ns.iter().all(|ns| *ns <= MOST_NS)
}

fn are_named(sums: &[(String, u64)], most: u64) -> bool {
    sums.len() <= MOST_LISTED && sums.iter().all(|(name, sum)| is_short(name) && *sum <= most)
}

fn is_sane_deferred(deferred: &Deferred) -> bool {
    are_sane(&deferred.grace_periods_ns)
        && deferred.forced.is_none_or(|count| count <= MOST_COUNT)
        && are_named(&deferred.queued, MOST_COUNT)
}

fn is_short(name: &str) -> bool {
    name.len() <= MOST_NAME_BYTES
}

fn is_sane_vcpu(vcpu: &VcpuSample, sample: &Sample) -> bool {
    let times = [Some(vcpu.kept_ns), vcpu.idle_ns, vcpu.steal_ns, vcpu.run_delay_ns];
    vcpu.vcpu <= HIGHEST_VCPU
        && times.into_iter().flatten().all(|ns| ns <= MOST_SPAN_NS)
        && vcpu.beats.max(vcpu.lost) <= MOST_SPAN_NS
        && vcpu.offs.len() as u64 <= WAITING_OFFS.max(sample.span_ns / LEAST_OFF_NS)
        && vcpu.offs.iter().all(is_sane_off)
        && vcpu.offs.is_sorted_by(|one, next| one.back_ns <= next.since_ns)
        && vcpu.offs.last().is_none_or(|last| last.back_ns <= sample.at_ns.saturating_add(SLACK_NS))
}

fn is_sane_off(off: &Off) -> bool {
    off.since_ns < off.back_ns && off.back_ns <= MOST_NS
}

/// About how much memory it takes, bytes.
pub(crate) fn bytes(sample: &Sample) -> usize {
    let vcpu = |vcpu: &VcpuSample| size_of::<VcpuSample>() + size_of_val(&vcpu.offs[..]);
    let named =
        |all: &[(String, u64)]| -> usize { all.iter().map(|one| size_of_val(one) + one.0.len()).sum() };
    let slab = |slab: &SlabGrowth| size_of_val(slab) + slab.cache.len();
    let deferred = sample
        .deferred
        .as_ref()
        .map_or(0, |deferred| size_of_val(&deferred.grace_periods_ns[..]) + named(&deferred.queued));
    size_of::<Sample>()
        + size_of_val(&sample.grace_periods_ns[..])
        + sample.vcpus.iter().map(vcpu).sum::<usize>()
        + sample.slabs.iter().map(slab).sum::<usize>()
        + named(&sample.in_the_way)
        + deferred
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_limits_and_times_out_of_order_are_not_sane() {
        let with = |change: fn(&mut Sample)| {
            let offs = vec![Off { since_ns: 5, back_ns: 7 }, Off { since_ns: 7, back_ns: 9 }];
            let vcpu = VcpuSample { offs, ..VcpuSample::default() };
            let mut sample = Sample { at_ns: 9, span_ns: 9, vcpus: vec![vcpu], ..Sample::default() };
            change(&mut sample);
            is_sane(&sample)
        };
        assert!(with(|_| ()));
        assert!(!with(|sample| sample.span_ns = 10));
        assert!(!with(|sample| sample.at_ns = u64::MAX));
        assert!(!with(|sample| sample.beat_ns = u64::MAX));
        assert!(!with(|sample| sample.io_wait_ns = Some(u64::MAX)));
        assert!(!with(|sample| sample.grace_periods_ns = vec![u64::MAX]));
        assert!(!with(|sample| sample.in_the_way = vec![("a".into(), u64::MAX)]));
        assert!(!with(|sample| sample.in_the_way = vec![("a".repeat(1025), 1)]));
        assert!(!with(|sample| sample.in_the_way = vec![("a".into(), 1); 5000]));
        assert!(!with(|sample| sample.grace_periods_ns = vec![1; 5000]));
        assert!(!with(|sample| {
            let off = |at: u64| Off { since_ns: 2 * at, back_ns: 2 * at + 1 };
            (sample.at_ns, sample.vcpus[0].offs) = (100_000, (0..8193).map(off).collect());
        }));
        assert!(!with(|sample| sample.stalls = Some(u64::MAX)));
        assert!(!with(|sample| {
            let queued = vec![("a".into(), u64::MAX)];
            sample.deferred = Some(Deferred { queued, ..Deferred::default() });
        }));
        assert!(!with(|sample| sample.vcpus[0].offs[0].back_ns = 8));
        assert!(!with(|sample| sample.vcpus[0].offs[0].since_ns = 7));
        assert!(!with(|sample| sample.vcpus[0].offs[1].back_ns = 70_000_000_000));
        assert!(!with(|sample| sample.vcpus[0].steal_ns = Some(u64::MAX)));
        assert!(!with(|sample| sample.vcpus.push(VcpuSample::default())));
        assert!(!with(|sample| sample.vcpus = vec![VcpuSample::default(); 2000]));
    }
}
