//! What the placer knows about one task.

use super::Settings;
use super::limit::Limit;
use crate::cpus::CpuSet;
use crate::io::IoMeter;
use crate::signal::Admission;

/// A task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// The CPUs its user allows.
    pub(super) mask: CpuSet,
    /// The vCPU it is on: where the placer put it, or where it was last seen.
    pub(super) on: Option<usize>,
    /// Whether the placer has pinned it there.
    pub(super) placed: bool,
    pub(super) io: IoMeter,
    /// Its I/Os come as events, so it is known which are outstanding.
    pub(super) has_events: bool,
    /// Where its last I/O was issued, which is where the completion interrupts: a vCPU, and the number of its slice
    /// then.
    pub(super) issued: Option<(usize, u64)>,
    pub(super) limit: Limit,
    /// Number of the signal at which it last moved.
    pub(super) moved_at: u64,
    /// What a move costs, ns.
    pub(super) cost_ns: u64,
}

impl Task {
    pub(super) fn new(settings: &Settings, admission: &Admission, now_ns: u64) -> Task {
        let refill_ns = (admission.working_set_bytes / 1024).saturating_mul(settings.refill_ns_per_kib);
        let cost_ns = settings.move_cost_ns.saturating_add(refill_ns);
        Task {
            mask: admission.mask,
            on: admission.on,
            placed: false,
            io: IoMeter::new(settings.io, now_ns),
            has_events: false,
            issued: None,
            limit: Limit::new(settings.moves_per_s, cost_ns, now_ns),
            moved_at: 0,
            cost_ns,
        }
    }

    /// How heavy its I/O is: the I/O fraction in thousandths, at least one.
    pub(super) fn weight(&self) -> u64 {
        self.io.permille().max(1)
    }

    /// The user gave it another mask, which replaces the placer's.
    pub(super) fn remask(&mut self, mask: CpuSet) {
        self.mask = mask;
        self.placed = false;
        self.on = self.on.filter(|on| mask.contains(*on));
    }

    /// The clock was set back to `now_ns`.
    pub(super) fn rebase(&mut self, now_ns: u64) {
        self.io.rebase(now_ns);
        self.limit.rebase(now_ns);
    }
}
