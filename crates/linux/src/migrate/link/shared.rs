//! The state that the daemon's threads share. It is all atomics, so no thread waits for another.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use reprieve_policy::cpus::CpuSet;

use crate::threads;

/// A thread that others move to their own vCPU and wake up.
///
/// A sleeping thread can be moved at once, even off a vCPU that is off. Movers sleep nearly all the time, so the waking
/// thread first moves them to its own vCPU, which is certainly on. A running thread is never moved: if its vCPU were
/// off, the waker would have to wait.
#[derive(Debug, Default)]
pub struct Sleeper {
    tid: AtomicI32,
    on: AtomicI32,
    resting: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Sleeper {
    /// Registers the calling thread as the sleeper. Call it once, before it first sleeps.
    pub fn enter(&self) {
        self.on.store(-1, Ordering::Relaxed);
        // Fails only if a thread is registered already, which then stays.
        let _ = self.thread.set(std::thread::current());
        self.tid.store(threads::own_tid(), Ordering::Relaxed);
    }

    /// Sleeps until woken up, for at most this long.
    pub fn rest(&self, most: Duration) {
        // Relaxed: a hint. A waker that misses it wakes the thread where it is.
        self.resting.store(true, Ordering::Relaxed);
        std::thread::park_timeout(most);
        self.resting.store(false, Ordering::Relaxed);
    }

    /// Moves the sleeper to `cpu`, the caller's own, if it sleeps, and wakes it up.
    pub fn wake_on(&self, cpu: usize) {
        // Relaxed: a hint. Of two wakers either CPU will do, since both are on.
        if self.resting.load(Ordering::Relaxed) && self.on.swap(cpu as i32, Ordering::Relaxed) != cpu as i32 {
            let _ = threads::set_affinity_set(self.tid.load(Ordering::Relaxed), &CpuSet::of(cpu));
        }
        self.wake();
    }

    /// Wakes the sleeper up where it is.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The state that all threads share.
#[derive(Debug, Default)]
pub struct Shared {
    /// All threads are to end.
    pub stop: AtomicBool,
    /// Time between beats, ns.
    pub period_ns: AtomicU64,
    /// After a late beat, the most time between beats, ns, until the main loop chooses again.
    pub hurried_ns: AtomicU64,
    /// Most time between two runs of the decider, ns. A late beat runs it at once.
    pub look_ns: AtomicU64,
    /// When the decider last ran, ns.
    pub looked_ns: AtomicU64,
    /// For each vCPU: whether I/O tasks are on it that any of its beats may have to move.
    endangered: Box<[AtomicBool]>,
    /// Number of values that did not fit into a ring.
    pub lost: AtomicU64,
    /// Work of beat threads, decider and movers, ns.
    pub worked_ns: AtomicU64,
}

impl Shared {
    /// The state for this many vCPUs, with this time between beats, ns.
    pub fn new(vcpus: usize, period_ns: u64) -> Shared {
        Shared {
            period_ns: period_ns.into(),
            hurried_ns: period_ns.into(),
            look_ns: period_ns.into(),
            endangered: (0..vcpus).map(|_| AtomicBool::default()).collect(),
            ..Shared::default()
        }
    }

    /// Whether all threads are to end.
    pub fn is_stopped(&self) -> bool {
        // Relaxed here and below: these are single values, and order nothing else.
        self.stop.load(Ordering::Relaxed)
    }

    /// A beat was late: beat faster for a while, to see why.
    pub fn hurry(&self) {
        self.period_ns.fetch_min(self.hurried_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Sets whether any beat of this vCPU may have to move tasks.
    pub fn set_endangered(&self, vcpu: usize, is: bool) {
        if let Some(endangered) = self.endangered.get(vcpu) {
            endangered.store(is, Ordering::Relaxed);
        }
    }

    /// Whether any beat of this vCPU may have to move tasks, so that each must run the decider.
    pub fn is_endangered(&self, vcpu: usize) -> bool {
        self.endangered.get(vcpu).is_some_and(|endangered| endangered.load(Ordering::Relaxed))
    }

    /// Adds the work of one step, ns.
    pub fn count_work(&self, ns: u64) {
        self.worked_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts a value as lost, unless it was `pushed`.
    pub fn count_lost(&self, pushed: bool) {
        if !pushed {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_a_resting_thread_is_moved() {
        let cpus = threads::affinity_set(threads::own_tid()).unwrap();
        let (one, other) = (cpus.iter().next().unwrap(), cpus.iter().last().unwrap());
        let sleeper = Arc::new(Sleeper::default());
        let own = Arc::clone(&sleeper);
        let (entered, is_entered) = std::sync::mpsc::channel();
        let go = Arc::new(AtomicBool::new(false));
        let goes = Arc::clone(&go);
        let thread = std::thread::spawn(move || {
            own.enter();
            entered.send(threads::own_tid()).unwrap();
            // Not through a channel, which would consume the wake-up.
            while !goes.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            own.rest(Duration::from_secs(600));
            threads::affinity_set(threads::own_tid()).unwrap()
        });
        let tid = is_entered.recv().unwrap();
        // The thread does not rest: it stays where it is, and its next rest ends at once.
        sleeper.wake_on(one);
        assert_eq!(threads::affinity_set(tid).unwrap(), cpus);
        go.store(true, Ordering::Relaxed);
        assert_eq!(thread.join().unwrap(), cpus);
        // A resting thread is moved.
        sleeper.resting.store(true, Ordering::Relaxed);
        sleeper.tid.store(threads::own_tid(), Ordering::Relaxed);
        sleeper.wake_on(other);
        assert_eq!(threads::affinity_set(threads::own_tid()).unwrap(), CpuSet::of(other));
        threads::set_affinity_set(threads::own_tid(), &cpus).unwrap();
    }
}
