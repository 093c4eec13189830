//! The writer: replaces random entries at the asked rate, and turns the phases. It is the program's first thread.
//!
//! Delete `i` is due at start + `i` / rate, whatever happened before: a writer that is late catches up, and how late it
//! was is counted. What it could not deliver by the end of the window stays undelivered.

use crate::clock::{MILLISECOND_NS, SECOND_NS, now_ns, sleep_until, thread_cpu_ns};
use crate::histogram::Histogram;
use crate::ledger::Ledger;
use crate::options::{Fault, Options};
use crate::phase::{self, Phase};
use crate::random::Stream;
use crate::scheme::{Scheme, Writer as _};
use crate::table::Table;

/// Nodes that wait to be freed are bounded by this (1 GiB of nodes); beyond it deletes are not delivered.
const MAX_UNRECLAIMED: u64 = 1 << 24;

/// What is not freed so long after the window, stalls apart, is freed when the readers have ended; its delay shows it.
const DRAIN_LIMIT_NS: u64 = 10 * SECOND_NS;

/// Counters that start with the window.
#[derive(Debug, Default)]
pub struct Counts {
    /// Deletes delivered.
    pub deletes: u64,
    /// Wall time in the scheme's retire.
    pub retire: Histogram,
    /// Sum of how late deletes began, in nanoseconds.
    pub late_sum_ns: u64,
    /// The latest begin, in nanoseconds.
    pub late_max_ns: u64,
    /// Most nodes that waited to be freed.
    pub peak: u64,
}

/// What the writer measured in the window.
#[derive(Debug, Default)]
pub struct Window {
    /// Its counters.
    pub counts: Counts,
    /// How long the window was, in nanoseconds.
    pub window_ns: u64,
    /// Deletes not yet freed when the window ended.
    pub pending: u64,
    /// CPU time of the writer's thread, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the scheme's own threads, in nanoseconds.
    pub background_cpu_ns: u64,
}

/// The writer of a run.
pub struct Writer<'a, S: Scheme + 'a> {
    scheme: &'a S,
    part: S::Writer<'a>,
    options: &'a Options,
    table: &'a Table,
    ledger: &'static Ledger,
    phase: &'a phase::Clock,
    random: Stream,
    start_ns: u64,
    /// Deletes that fell due, warm-up included.
    issued: u64,
    counts: Counts,
}

impl<'a, S: Scheme> Writer<'a, S> {
    /// A writer that has not begun. Call in the writer's thread.
    pub fn new(
        scheme: &'a S,
        options: &'a Options,
        table: &'a Table,
        ledger: &'static Ledger,
        phase: &'a phase::Clock,
    ) -> Self {
        Self {
            scheme,
            part: scheme.writer(),
            options,
            table,
            ledger,
            phase,
            random: Stream::new(options.seed, 0),
            start_ns: 0,
            issued: 0,
            counts: Counts::default(),
        }
    }

    /// Runs the warm-up and the window; then goes on deleting, uncounted, until the window's deletes are freed, so that
    /// the last of them wait as the others did.
    pub fn run(mut self) -> Window {
        let half_ns = self.options.duration_ms * MILLISECOND_NS / 2;
        self.start_ns = now_ns();
        self.delete_until(self.start_ns + self.options.warmup_ms * MILLISECOND_NS);
        let window_start_ns = now_ns();
        let (cpu_ns, background_cpu_ns) = self.open_window(window_start_ns);
        self.delete_until(window_start_ns + half_ns);
        self.phase.turn(Phase::Middle);
        self.delete_until(window_start_ns + 2 * half_ns);
        let window_end_ns = now_ns();
        let window = Window {
            cpu_ns: thread_cpu_ns() - cpu_ns,
            background_cpu_ns: self.scheme.background_cpu_ns() - background_cpu_ns,
            window_ns: window_end_ns - window_start_ns,
            pending: self.counts.deletes - self.ledger.delay().count(),
            counts: std::mem::take(&mut self.counts),
        };
        self.ledger.close_window(window_end_ns);
        self.phase.turn(Phase::Drain);
        if S::FREES {
            self.drain(window.counts.deletes);
        }
        window
    }

    fn open_window(&mut self, now: u64) -> (u64, u64) {
        self.counts = Counts::default();
        self.ledger.open_window(now);
        self.phase.turn(Phase::Window);
        (thread_cpu_ns(), self.scheme.background_cpu_ns())
    }

    fn drain(&mut self, deletes: u64) {
        let mut now = now_ns();
        let limit_ns = now + self.options.stall_ms * MILLISECOND_NS + DRAIN_LIMIT_NS;
        while self.ledger.delay().count() < deletes && now < limit_ns {
            self.delete_until(now + MILLISECOND_NS);
            now = now_ns();
        }
    }

    /// Deletes on schedule until `end_ns`.
    fn delete_until(&mut self, end_ns: u64) {
        loop {
            let due_ns = match self.options.deletes_per_s {
                0 => u64::MAX,
                rate => self.start_ns + self.issued * SECOND_NS / rate,
            };
            if due_ns >= end_ns {
                return sleep_until(end_ns);
            }
            let mut now = now_ns();
            if now < due_ns {
                sleep_until(due_ns);
                now = now_ns();
            }
            if now >= end_ns {
                return;
            }
            self.issued += 1;
            if self.ledger.unreclaimed() < MAX_UNRECLAIMED {
                self.count_lateness(now - due_ns);
                self.delete_one();
            }
        }
    }

    fn count_lateness(&mut self, late_ns: u64) {
        self.counts.late_sum_ns += late_ns;
        self.counts.late_max_ns = self.counts.late_max_ns.max(late_ns);
    }

    fn delete_one(&mut self) {
        let key = self.random.below(self.table.entries());
        let fresh = S::node(key, self.ledger);
        let old = self.table.unlink(key, S::MARKS);
        // SAFETY: the node is not retired yet, so nobody frees it.
        unsafe { old.as_ref() }.stamp(now_ns());
        self.table.insert(fresh);
        self.ledger.count_retired();
        let before_ns = now_ns();
        match self.options.fault {
            // SAFETY: as above; a quarantined node is never freed.
            Some(Fault::FreeAtOnce) => unsafe { old.as_ref() }.quarantine(),
            // SAFETY: just unlinked, and a node is unlinked once.
            None => unsafe { self.part.retire(old) },
        }
        self.counts.retire.record(now_ns() - before_ns);
        self.counts.peak = self.counts.peak.max(self.ledger.unreclaimed());
        self.counts.deletes += 1;
    }
}
