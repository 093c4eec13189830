//! One task as the placer knows it.

use super::Settings;
use super::limit::Limit;
use crate::cpus::CpuSet;
use crate::io::IoMeter;
use crate::signal::Admission;

/// A task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) mask: CpuSet,
    /// Where it is: where it was put, or last seen.
    pub(super) on: Option<usize>,
    /// Whether it was put there, and is not where its user's mask alone would let it be.
    pub(super) placed: bool,
    pub(super) io: IoMeter,
    /// I/Os come as events, so that outstanding ones are known.
    pub(super) has_events: bool,
    /// The vCPU that its last I/O was issued on, which its completion interrupts, and that vCPU's slice then.
    pub(super) issued: Option<(usize, u64)>,
    pub(super) limit: Limit,
    /// The signal, by its number, at which it was moved last.
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

    /// How heavy its I/O is, in thousandths, at least one.
    pub(super) fn weight(&self) -> u64 {
        self.io.permille().max(1)
    }

    /// Its user has given it another mask, which undoes what was done to it.
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
