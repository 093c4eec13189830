//! The policy's current state. The decider publishes it here for the main loop, which uses it for metrics, for the pace
//! of beats, and for the guard. A vCPU is *off* while the host has descheduled it.

use std::sync::atomic::{AtomicU64, Ordering};

use reprieve_policy::place::Placer;

/// The state of one vCPU. All accesses are relaxed: these are single values, and order nothing else.
#[derive(Debug, Default)]
pub struct VcpuStatus {
    /// Time off in the last second, thousandths.
    pub off_permille: AtomicU64,
    /// Share of slices close to the median, thousandths.
    pub regular_permille: AtomicU64,
    /// The median slice, ns; 0 if unknown.
    pub slice_ns: AtomicU64,
    /// Number of gaps between beats, by cause: the host, the guest, unknown.
    pub gaps: [AtomicU64; 3],
}

/// The state of the policy.
#[derive(Debug, Default)]
pub struct Status {
    /// The state of each vCPU.
    pub vcpus: Box<[VcpuStatus]>,
    /// Current number of I/O tasks.
    pub io_tasks: AtomicU64,
    /// 1 if the policy acts because some vCPU is off, or is expected to be, for too large a share of time; else 0.
    pub wrong: AtomicU64,
}

impl Status {
    /// The state for this many vCPUs.
    pub fn new(vcpus: usize) -> Status {
        Status { vcpus: (0..vcpus).map(|_| VcpuStatus::default()).collect(), ..Status::default() }
    }

    /// Publishes the policy's state at `now_ns`. Allocates nothing.
    pub fn show(&self, placer: &Placer, now_ns: u64) {
        let put = |to: &AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
        put(&self.io_tasks, placer.io_tasks() as u64);
        put(&self.wrong, placer.is_wrong().into());
        for (number, to) in self.vcpus.iter().enumerate() {
            let Some(vcpu) = placer.vcpu(number) else { continue };
            put(&to.off_permille, vcpu.off_permille(now_ns));
            put(&to.regular_permille, placer.regular_permille(number).into());
            put(&to.slice_ns, vcpu.slices().on_median_ns().unwrap_or(0));
            let verdicts = vcpu.verdicts();
            for (gap, count) in to.gaps.iter().zip([verdicts.host, verdicts.guest, verdicts.unknown]) {
                put(gap, count);
            }
        }
    }

    /// Number of gaps that were the host's doing, of all vCPUs.
    pub fn host_gaps(&self) -> u64 {
        self.vcpus.iter().map(|vcpu| vcpu.gaps[0].load(Ordering::Relaxed)).sum()
    }

    /// Whether moving tasks may help: there are I/O tasks, and some vCPU is off too much.
    pub fn is_busy(&self) -> bool {
        self.wrong.load(Ordering::Relaxed) != 0 && self.io_tasks.load(Ordering::Relaxed) > 0
    }
}
