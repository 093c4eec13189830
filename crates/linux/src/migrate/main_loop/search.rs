//! Finds tasks that do I/O: the tasks of which the decider has reported events, or, without events, tasks that a scan of
//! `/proc` finds within a budget of CPU time.

use std::sync::atomic::Ordering;

use super::budget_permille;
use crate::migrate::clock;
use crate::migrate::find::scan::{Found, Scan};
use crate::migrate::find::source::Source;
use crate::migrate::link::status::Status;
use crate::migrate::roots::Roots;

/// Shortest time between two scans, ns; a scan adds what its CPU time asks for.
const SCAN_NS: u64 = 100_000_000;
/// A scan adds at most this, ns.
const SCAN_MOST_NS: u64 = 2_000_000_000;
/// A scan looks at this many processes or tasks at least.
const SCAN_LEAST: u32 = 16;

/// The search's state.
pub struct Search {
    scan: Scan,
    source: Source,
    /// Tasks that do I/O and are not managed, as the decider has reported: process and task.
    unmanaged: Vec<(i32, i32)>,
    /// Time that tasks had waited for I/O at the last scan, ns (PSI).
    pressure_ns: u64,
    /// When the next scan is due, ns.
    scan_ns: u64,
}

impl Search {
    /// With nothing found yet.
    pub fn new(scan: Scan, source: Source) -> Search {
        Search { scan, source, unmanaged: Vec::new(), pressure_ns: 0, scan_ns: 0 }
    }

    /// The decider has seen an I/O of this task, which is not managed.
    pub fn heard_of(&mut self, pid: i32, tid: i32) {
        self.unmanaged.push((pid, tid));
    }

    /// Tasks that do I/O. Some may be managed already.
    pub fn found(&mut self, roots: &Roots, status: &Status, now_ns: u64) -> Vec<Found> {
        let Search { scan, unmanaged, .. } = self;
        match self.source {
            Source::Events => unmanaged.drain(..).filter_map(|(pid, tid)| scan.find(pid, tid)).collect(),
            Source::DelayAccounting | Source::States => self.scan(roots, status, now_ns),
        }
    }

    fn scan(&mut self, roots: &Roots, status: &Status, now_ns: u64) -> Vec<Found> {
        if now_ns < self.scan_ns {
            return Vec::new();
        }
        let began_ns = clock::thread_cpu_ns();
        // Without PSI nobody knows whether a task has waited, so tasks are looked at in any case.
        let pressure_ns = roots.proc.io_pressure_ns().ok();
        let waited = pressure_ns.is_none_or(|ns| ns != self.pressure_ns);
        (self.pressure_ns, self.scan_ns) = (pressure_ns.unwrap_or(0), now_ns + SCAN_NS);
        if !waited {
            return Vec::new();
        }
        // The scan has a budget of its own: the cost of looking at managed tasks would starve it.
        let permille = budget_permille(status.wrong.load(Ordering::Relaxed) != 0);
        if !self.scan.has_compared() {
            // At the start it looks at all tasks twice: only the second look shows which of them do I/O.
            return self.scan.advance(|| true);
        }
        let most_ns = SCAN_NS * permille / 1000;
        let spent_ns = || clock::thread_cpu_ns().saturating_sub(began_ns);
        let mut least = SCAN_LEAST;
        let found = self.scan.advance(|| {
            least = least.saturating_sub(1);
            least > 0 || spent_ns() < most_ns
        });
        self.scan_ns += (spent_ns() * 1000 / permille).min(SCAN_MOST_NS);
        found
    }
}
