//! What the policy knows at the moment, as the decider shows it to the house thread: for metrics, for the pace of beats, for
//! the guard.

use std::sync::atomic::{AtomicU64, Ordering};

use reprieve_policy::place::Placer;

/// The state of one vCPU. Values are single, nothing is ordered by them: all accesses are relaxed.
#[derive(Debug, Default)]
pub struct VcpuStatus {
    /// Time off in the last second, thousandths.
    pub off_permille: AtomicU64,
    /// How often its end was predicted right lately, thousandths.
    pub trust_permille: AtomicU64,
    /// The median slice, ns; 0 if not known.
    pub slice_ns: AtomicU64,
    /// The median time off, ns; 0 if not known.
    pub off_ns: AtomicU64,
    /// Gaps by verdict: host, guest, unknown.
    pub gaps: [AtomicU64; 3],
    /// Beats at impossible times.
    pub clock_faults: AtomicU64,
}

/// The state of all.
#[derive(Debug)]
pub struct Status {
    /// By vCPU.
    pub vcpus: Box<[VcpuStatus]>,
    /// I/O tasks at present.
    pub io_tasks: AtomicU64,
    /// 1 if some vCPU is off for a share that counts.
    pub wrong: AtomicU64,
}

impl Status {
    /// Of so many vCPUs.
    pub fn new(vcpus: usize) -> Status {
        Status {
            vcpus: (0..vcpus).map(|_| VcpuStatus::default()).collect(),
            io_tasks: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        }
    }

    /// Shows the policy's state at `now_ns`. Allocates nothing.
    pub fn show(&self, placer: &Placer, now_ns: u64) {
        let put = |to: &AtomicU64, value: u64| to.store(value, Ordering::Relaxed);
        put(&self.io_tasks, placer.io_tasks() as u64);
        put(&self.wrong, placer.is_wrong().into());
        for (number, to) in self.vcpus.iter().enumerate() {
            let Some(vcpu) = placer.vcpu(number) else { continue };
            put(&to.off_permille, vcpu.off_permille(now_ns));
            put(&to.trust_permille, placer.trust_permille(number).into());
            put(&to.slice_ns, vcpu.slices().on_median_ns().unwrap_or(0));
            put(&to.off_ns, vcpu.slices().off_median_ns().unwrap_or(0));
            let verdicts = vcpu.verdicts();
            for (gap, count) in to.gaps.iter().zip([verdicts.host, verdicts.guest, verdicts.unknown]) {
                put(gap, count);
            }
            put(&to.clock_faults, verdicts.clock_faults);
        }
    }

    /// Whether there is something to win: I/O tasks, and vCPUs that are off.
    pub fn is_busy(&self) -> bool {
        self.wrong.load(Ordering::Relaxed) != 0 && self.io_tasks.load(Ordering::Relaxed) > 0
    }
}
