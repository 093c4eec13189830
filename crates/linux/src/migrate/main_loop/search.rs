//! Finds tasks that do I/O: those for which the decider has reported events or, without events, those that a scan of
//! `/proc` finds within a budget of CPU time.

use std::sync::atomic::Ordering;

use reprieve_policy::SECOND_NS;

use super::budget_permille;
use crate::clock;
use crate::migrate::Roots;
use crate::migrate::find::{Found, Scan, Source};
use crate::migrate::link::Status;

/// Least time between two scans, ns. To keep the budget, a scan extends it by its CPU time...
const SCAN_NS: u64 = 100_000_000;
/// ... but by no more than this, ns.
const SCAN_MOST_NS: u64 = 2 * SECOND_NS;
/// The fewest processes or tasks that a scan looks at.
const SCAN_LEAST: u32 = 16;

/// The search's state.
pub struct Search {
    scan: Scan,
    source: Source,
    /// Unmanaged tasks that do I/O, as the decider has reported them: process and thread.
    unmanaged: Vec<(i32, i32)>,
    /// Total time that tasks had waited for I/O at the last scan (PSI), ns.
    pressure_ns: u64,
    /// When the next scan is due, ns.
    scan_ns: u64,
}

impl Search {
    pub fn new(scan: Scan, source: Source) -> Search {
        Search { scan, source, unmanaged: Vec::new(), pressure_ns: 0, scan_ns: 0 }
    }

    /// Takes in that the decider has seen an I/O of this unmanaged task.
    pub fn add_unmanaged(&mut self, pid: i32, tid: i32) {
        self.unmanaged.push((pid, tid));
    }

    /// Tasks that do I/O. Some may already be managed.
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
        // If PSI shows that no task has waited, there is nothing to find. Without PSI, scan in any case.
        let pressure_ns = roots.proc.pressure_ns("io").ok();
        let waited = pressure_ns.is_none_or(|ns| ns != self.pressure_ns);
        (self.pressure_ns, self.scan_ns) = (pressure_ns.unwrap_or(0), now_ns + SCAN_NS);
        if !waited {
            return Vec::new();
        }
        // The scan has its own budget: in a common one, looks at managed tasks would leave it nothing.
        let permille = budget_permille(status.wrong.load(Ordering::Relaxed) != 0);
        if !self.scan.has_compared() {
            // At the start it looks at all tasks twice without a limit: only the second look shows which do I/O.
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
