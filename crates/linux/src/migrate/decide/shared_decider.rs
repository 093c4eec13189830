//! The desk at which decisions are made: by whoever beats and finds it free.
//!
//! A thread of its own for that would be woken up for each beat that tells something, and would have to be brought to a vCPU
//! that is on; who beats is on one. Where a wake-up costs much, as under emulation, that is half of all that the daemon costs.
//!
//! Invariants: nobody waits for the desk. Who finds it taken leaves it to who has it, and that one looks again after
//! leaving: what has come in meanwhile is not left lying until the next beat.
//!
//! Ordering: as in `table`: `asked` is stored before the fence before the try (A), and loaded after the fence after the
//! unlock (B). If A comes before B in the one order of fences, B's load sees what A stored; else A's try sees B's unlock, and
//! succeeds.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, TryLockError};

use super::decider::Decider;
use crate::migrate::clock;
use crate::migrate::link::status::Status;

/// Between two times that the state is shown, ns.
const SHOW_NS: u64 = 50_000_000;

/// The decider and who shows its state.
pub struct SharedDecider {
    at: Mutex<At>,
    asked: AtomicBool,
}

struct At {
    decider: Decider,
    status: Arc<Status>,
    shown_ns: u64,
}

impl SharedDecider {
    /// With nobody at it. The state is shown to `status` now and then.
    pub fn new(decider: Decider, status: Arc<Status>) -> SharedDecider {
        SharedDecider { at: Mutex::new(At { decider, status, shown_ns: 0 }), asked: AtomicBool::new(false) }
    }

    /// Takes in all signals that are there and decides, on this vCPU; when its next beat is due, ns. `None` if somebody else
    /// is at it, who does it instead.
    pub fn decide(&self, vcpu: usize) -> Option<u64> {
        let mut next_ns = None;
        loop {
            // Relaxed, with the fences: see above.
            self.asked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let mut at = match self.at.try_lock() {
                Ok(at) => at,
                // A thread that panicked has left it as good as it was: signals are taken one at a time.
                Err(TryLockError::Poisoned(at)) => at.into_inner(),
                Err(TryLockError::WouldBlock) => return next_ns,
            };
            self.asked.store(false, Ordering::Relaxed);
            next_ns = at.step(vcpu);
            drop(at);
            fence(Ordering::SeqCst);
            if !self.asked.load(Ordering::Relaxed) {
                return next_ns;
            }
        }
    }
}

impl At {
    fn step(&mut self, vcpu: usize) -> Option<u64> {
        let now_ns = clock::now_ns();
        self.decider.step(now_ns);
        if now_ns.saturating_sub(self.shown_ns) >= SHOW_NS {
            self.shown_ns = now_ns;
            self.status.show(self.decider.placer(), now_ns);
        }
        self.decider.placer().next_beat_ns(vcpu)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::migrate::decide::decider::Lines;
    use crate::migrate::link::entry::Entry;
    use crate::migrate::link::shared::Shared;
    use crate::migrate::masks::table::Table;
    use reprieve_policy::beat::Beat;
    use reprieve_policy::place::Settings;
    use reprieve_policy::signal::Signal;
    use rtrb::RingBuffer;

    const ROUNDS: usize = 60_000;

    #[test]
    fn whoever_finds_it_taken_is_served_by_who_has_it() {
        let shared = Arc::new(Shared::new(2, 1_000_000));
        let (outs, beats): (Vec<_>, Vec<_>) = (0..2).map(|_| RingBuffer::new(4)).unzip();
        let ((_house, from_house), (log, mut told)) = (RingBuffer::new(1), RingBuffer::new(16));
        let lines = Lines { beats, main_loop: from_house, events: None, log, movers: Vec::new() };
        let table = Arc::new(Table::new(1, None));
        let decider = Decider::new(Settings::new(2, 1), lines, table, shared, None, true);
        let (decider, barrier) = (SharedDecider::new(decider, Arc::new(Status::new(2))), Barrier::new(3));
        // Rounds after which something was left lying.
        let mut left = 0;
        std::thread::scope(|scope| {
            for (vcpu, mut out) in outs.into_iter().enumerate() {
                let (decider, barrier) = (&decider, &barrier);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        barrier.wait();
                        let at_ns = clock::now_ns();
                        let (period_ns, steal_ns, run_delay_ns) = (1_000_000, None, None);
                        let beat = Beat { vcpu, due_ns: at_ns, at_ns, period_ns, steal_ns, run_delay_ns };
                        out.push(Signal::Beat(beat)).unwrap();
                        decider.decide(vcpu);
                        barrier.wait();
                    }
                });
            }
            for _ in 0..ROUNDS {
                barrier.wait();
                barrier.wait();
                let beats = std::iter::from_fn(|| told.pop().ok());
                let beats = beats.filter(|entry| matches!(entry, Entry::Signal(Signal::Beat(_)))).count();
                left += usize::from(beats != 2);
            }
        });
        assert_eq!(left, 0);
    }
}
