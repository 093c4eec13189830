//! Shares one decider among the beat threads: after its beat a thread runs it, unless another thread is running it.
//!
//! A separate decider thread would need a wake-up for each beat that calls for a decision, and would have to be moved
//! to a vCPU that the host is running; a beat thread already runs on one. Where a wake-up is expensive, as under
//! emulation, sharing halves the daemon's cost.
//!
//! Invariants: no thread waits for the decider. If another thread is running it, leave the work to that one, which
//! checks for new work after unlocking. So no signal has to wait for the next beat.
//!
//! Ordering, as in `table`: `asked` is stored, then a fence, then the try-lock (A); and the unlock, then a fence, then
//! `asked` is loaded (B). If A's fence comes first in the total order of fences, B's load sees A's store. Otherwise
//! A's try-lock sees B's unlock, and succeeds, unless a third thread has the lock: then the same holds for A and that
//! thread.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, TryLockError};

use super::Decider;
use crate::clock;
use crate::migrate::link::Status;

/// Time between two updates of the shown state, ns.
const SHOW_NS: u64 = 50_000_000;

/// A decider that several threads can run, one at a time.
pub struct SharedDecider {
    guarded: Mutex<Guarded>,
    asked: AtomicBool,
}

struct Guarded {
    decider: Decider,
    status: Arc<Status>,
    shown_ns: u64,
}

impl SharedDecider {
    /// Shares a decider, which shows its state in `status` at intervals.
    pub fn new(decider: Decider, status: Arc<Status>) -> SharedDecider {
        let guarded = Mutex::new(Guarded { decider, status, shown_ns: 0 });
        SharedDecider { guarded, asked: AtomicBool::new(false) }
    }

    /// Takes in all present signals and decides. Call it on vCPU `vcpu`. Returns when that vCPU's next beat is due, ns;
    /// `None` if another thread does the work instead.
    pub fn decide(&self, vcpu: usize) -> Option<u64> {
        let mut next_ns = None;
        loop {
            // Relaxed is enough with the fences: see above.
            self.asked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let mut guarded = match self.guarded.try_lock() {
                Ok(guarded) => guarded,
                // Signals are taken one at a time, so a panic leaves a usable state.
                Err(TryLockError::Poisoned(guarded)) => guarded.into_inner(),
                Err(TryLockError::WouldBlock) => return next_ns,
            };
            self.asked.store(false, Ordering::Relaxed);
            next_ns = guarded.step(vcpu);
            drop(guarded);
            fence(Ordering::SeqCst);
            if !self.asked.load(Ordering::Relaxed) {
                return next_ns;
            }
        }
    }
}

impl Guarded {
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
    use crate::migrate::decide::{Lines, OffTimes};
    use crate::migrate::link::{Entry, Shared};
    use crate::migrate::masks::Table;
    use reprieve_policy::beat::Beat;
    use reprieve_policy::place::Settings;
    use reprieve_policy::signal::Signal;
    use rtrb::RingBuffer;

    const ROUNDS: usize = 60_000;

    #[test]
    fn beats_at_the_same_time_leave_no_signal_unread() {
        let shared = Arc::new(Shared::new(2, 1_000_000));
        let (outs, beats): (Vec<_>, Vec<_>) = (0..2).map(|_| RingBuffer::new(4)).unzip();
        let ((_signals, main_loop), (log, mut entries)) = (RingBuffer::new(1), RingBuffer::new(16));
        let off_times = OffTimes::default();
        let lines = Lines {
            beats,
            main_loop,
            events: None,
            log,
            movers: Vec::new(),
            steal: None,
            off_times,
            records: true,
        };
        let table = Arc::new(Table::new(1, None));
        let decider = Decider::new(Settings::new(2, 1), lines, table, shared);
        let (decider, barrier) = (SharedDecider::new(decider, Arc::new(Status::new(2))), Barrier::new(3));
        // Number of rounds after which a signal was still unread.
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
                let beats = std::iter::from_fn(|| entries.pop().ok());
                let beats = beats.filter(|entry| matches!(entry, Entry::Signal(Signal::Beat(_)))).count();
                left += usize::from(beats != 2);
            }
        });
        assert_eq!(left, 0);
    }
}
