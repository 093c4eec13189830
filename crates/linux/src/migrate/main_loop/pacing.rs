//! Chooses the period of beats from the CPU time that the other threads have used, and publishes it to them.

use std::sync::atomic::Ordering;

use reprieve_policy::beat::Pace;

use crate::migrate::link::Shared;

/// The decider runs once in this many periods, and at once if a beat is late or tasks may have to leave.
const LOOKS: u64 = 4;

/// The pace of beats, and the work so far.
pub struct Pacing {
    pace: Pace,
    /// Work of the other threads up to the last choice, ns.
    worked_ns: u64,
}

impl Pacing {
    pub fn new(pace: Pace) -> Pacing {
        Pacing { pace, worked_ns: 0 }
    }

    /// Chooses the period from the work of the last `span_ns`, and from whether the time is busy.
    pub fn choose(&mut self, shared: &Shared, span_ns: u64, busy: bool) {
        let worked_ns = shared.worked_ns.load(Ordering::Relaxed);
        let spent_permille = worked_ns.saturating_sub(self.worked_ns) * 1000 / span_ns;
        self.worked_ns = worked_ns;
        // A beat thread has shortened the period since the last choice.
        if shared.period_ns.load(Ordering::Relaxed) < self.pace.period_ns() {
            self.pace.hurry();
        }
        let period_ns = self.pace.next(busy, spent_permille);
        shared.hurried_ns.store(self.pace.hurried_ns(), Ordering::Relaxed);
        shared.period_ns.store(period_ns, Ordering::Relaxed);
        shared.look_ns.store(period_ns * LOOKS, Ordering::Relaxed);
    }

    /// The chosen period, ns.
    pub fn period_ns(&self) -> u64 {
        self.pace.period_ns()
    }
}
