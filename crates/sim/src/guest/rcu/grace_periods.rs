//! The record of grace periods: when each began and ended, and when each CPU's bit was cleared in it.

use reprieve_study::grace_period::{GracePeriod, Span};

/// The open grace period, and those that ended and were not drained yet.
#[derive(Debug)]
pub(super) struct GracePeriods {
    sequence: u64,
    pub start_ns: u64,
    cleared_ns: Vec<Option<u64>>,
    pub ended: Vec<GracePeriod>,
}

impl GracePeriods {
    pub fn new(cpus: usize) -> GracePeriods {
        GracePeriods { sequence: 0, start_ns: 0, cleared_ns: vec![None; cpus], ended: Vec::new() }
    }

    pub fn start(&mut self, now_ns: u64, sequence: u64) {
        self.sequence = sequence;
        self.start_ns = now_ns;
        self.cleared_ns.fill(None);
    }

    pub fn clear(&mut self, now_ns: u64, cpu: usize) {
        self.cleared_ns[cpu] = Some(now_ns);
    }

    /// The grace period never waited for these.
    pub fn forget(&mut self, cpus: impl Iterator<Item = usize>) {
        cpus.for_each(|cpu| self.cleared_ns[cpu] = None);
    }

    /// Ends the open one; answers how long it took.
    pub fn end(&mut self, now_ns: u64) -> u64 {
        let span = Span::new(self.start_ns, now_ns);
        self.ended.push(GracePeriod { sequence: self.sequence, span, cleared_ns: self.cleared_ns.clone() });
        span.length_ns()
    }
}
