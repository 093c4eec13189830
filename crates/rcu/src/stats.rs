//! The figures of a domain: what it has done and what it is doing.

use crate::domain::Domain;
use crate::fence::{self, LateCpu};
use crate::histogram::Histogram;
use crate::late::LateReader;
use crate::mode::is_asymmetric;
use crate::platform::now_ns;
use crate::section;
use crate::sync::Ordering;

/// A domain's figures at the time of the call. Durations are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Durations of the grace periods that a caller waited for or that freed something.
    pub grace_periods: Histogram,
    /// Durations of the process's membarrier calls.
    pub membarrier: Histogram,
    /// Objects that wait to be freed.
    pub garbage_objects: usize,
    /// Their bytes.
    pub garbage_bytes: usize,
    /// The most objects that ever waited.
    pub peak_objects: usize,
    /// The most bytes that ever waited.
    pub peak_bytes: usize,
    /// Objects freed. Maps count entries, and tables that were replaced.
    pub freed_objects: u64,
    /// Objects accepted beyond the domain's limits because there was no room in time.
    pub exceeded: u64,
    /// How long the oldest waiting object has been waiting, or 0.
    pub oldest_ns: u64,
    /// Restartable sections that ran as locked ones, except while the domain is fenced.
    pub fallbacks: u64,
    /// Restarts of restartable sections, in the whole process.
    pub restarts: u64,
    /// Sections in which foreign code changed the thread's rseq field, in the whole process.
    pub foreign_rseq: u64,
    /// How often the domain has switched between membarrier and fences, in either direction.
    pub switches: u64,
    /// Whether the domain's readers execute fences at the moment.
    pub fenced: bool,
    /// Whether the kernel refuses membarrier, which it allowed before. Nothing can be freed then.
    pub membarrier_refused: bool,
    /// The CPU that keeps membarrier waiting now, or that did when it was last slow; for the whole process.
    pub late_cpu: Option<LateCpu>,
    /// Records of readers, in use or kept for later threads.
    pub records: usize,
    /// The readers that hold up the newest token.
    pub late: Vec<LateReader>,
}

impl Domain {
    /// The domain's figures. Takes locks for short moments, so it is not for hot paths.
    pub fn stats(&self) -> Stats {
        let (reclaim, core) = (self.reclaim(), self.core());
        let (peak_objects, peak_bytes) = reclaim.garbage().peaks();
        let garbage = reclaim.garbage();
        Stats {
            grace_periods: core.durations.snapshot(),
            membarrier: fence::latency(),
            garbage_objects: garbage.objects(),
            garbage_bytes: garbage.bytes(),
            peak_objects,
            peak_bytes,
            freed_objects: garbage.total_freed(),
            exceeded: garbage.total_exceeded(),
            oldest_ns: reclaim.oldest_ns().map_or(0, |ns| now_ns().saturating_sub(ns)),
            fallbacks: core.fallbacks.load(Ordering::Relaxed),
            restarts: section::restarts(),
            foreign_rseq: section::foreign(),
            switches: core.modes.switches(),
            fenced: !is_asymmetric(&core.clock.mode),
            membarrier_refused: fence::is_refused(),
            late_cpu: fence::thread::late_cpu(),
            records: core.readers.len(),
            late: core.late_readers(core.clock.now()),
        }
    }
}
