//! What the threads of the daemon share, all of it atomics: nobody waits for anybody.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use reprieve_policy::cpus::CpuSet;

use crate::threads;

/// A thread that others wake up, and bring to their own vCPU before.
///
/// A thread that sleeps may be moved at once, even off a vCPU that is descheduled; so movers, which sleep nearly all the time,
/// are brought to a vCPU that is known to be on: that of the thread that wakes them. One that runs
/// is never moved: on a vCPU that is off, its waker would have to wait for that.
#[derive(Debug, Default)]
pub struct Sleeper {
    tid: AtomicI32,
    on: AtomicI32,
    resting: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Sleeper {
    /// To be called by the thread itself before it sleeps.
    pub fn enter(&self) {
        self.on.store(-1, Ordering::Relaxed);
        // A second call changes nothing: a sleeper is entered once.
        let _ = self.thread.set(std::thread::current());
        self.tid.store(threads::own_tid(), Ordering::Relaxed);
    }

    /// Sleeps until it is woken up, at most so long.
    pub fn rest(&self, most: Duration) {
        // Relaxed: a hint. A waker that comes too early or too late for it wakes the thread where it is.
        self.resting.store(true, Ordering::Relaxed);
        std::thread::park_timeout(most);
        self.resting.store(false, Ordering::Relaxed);
    }

    /// Brings it to `cpu`, the caller's own, if it sleeps, and wakes it up.
    pub fn wake_on(&self, cpu: usize) {
        // Relaxed: a hint. Two wakers at a time bring it to one or the other, and both are on.
        if self.resting.load(Ordering::Relaxed) && self.on.swap(cpu as i32, Ordering::Relaxed) != cpu as i32 {
            let _ = threads::set_affinity_set(self.tid.load(Ordering::Relaxed), &CpuSet::of(cpu));
        }
        self.wake();
    }

    /// Wakes it up where it is.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// What all threads look at.
#[derive(Debug)]
pub struct Shared {
    /// Everything ends.
    pub stop: AtomicBool,
    /// Time between beats, ns.
    pub period_ns: AtomicU64,
    /// What it is no longer than after a late beat, ns, until the house thread chooses again.
    pub hurried_ns: AtomicU64,
    /// Time between two looks at what has come in, ns; a late beat does not wait so long.
    pub look_ns: AtomicU64,
    /// When somebody last looked, ns.
    pub looked_ns: AtomicU64,
    /// By vCPU: whether there are I/O tasks that each of its beats may have to move.
    endangered: Box<[AtomicBool]>,
    /// Values that did not fit into a ring.
    pub lost: AtomicU64,
    /// Work of beats, decider and movers, ns.
    pub worked_ns: AtomicU64,
}

impl Shared {
    /// For so many vCPUs, with this time between beats, ns.
    pub fn new(vcpus: usize, period_ns: u64) -> Shared {
        Shared {
            stop: AtomicBool::new(false),
            period_ns: AtomicU64::new(period_ns),
            hurried_ns: AtomicU64::new(period_ns),
            look_ns: AtomicU64::new(period_ns),
            looked_ns: AtomicU64::new(0),
            endangered: (0..vcpus).map(|_| AtomicBool::new(false)).collect(),
            lost: AtomicU64::new(0),
            worked_ns: AtomicU64::new(0),
        }
    }

    /// Whether everything ends.
    pub fn is_stopped(&self) -> bool {
        // Relaxed here and in all of this: single values, and nothing is ordered by them.
        self.stop.load(Ordering::Relaxed)
    }

    /// A beat was late: whatever it is, it is looked at closely for a while.
    pub fn hurry(&self) {
        self.period_ns.fetch_min(self.hurried_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Says so.
    pub fn set_endangered(&self, vcpu: usize, is: bool) {
        if let Some(endangered) = self.endangered.get(vcpu) {
            endangered.store(is, Ordering::Relaxed);
        }
    }

    /// Whether each beat of this vCPU must be looked at.
    pub fn is_endangered(&self, vcpu: usize) -> bool {
        self.endangered.get(vcpu).is_some_and(|endangered| endangered.load(Ordering::Relaxed))
    }

    /// Counts a step's work, ns.
    pub fn count_work(&self, ns: u64) {
        self.worked_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts a value that was lost unless `pushed`.
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
    fn only_a_thread_that_rests_is_brought_along() {
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
            // Not through a channel, which would take the wake-up for its own.
            while !goes.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            own.rest(Duration::from_secs(600));
            threads::affinity_set(threads::own_tid()).unwrap()
        });
        let tid = is_entered.recv().unwrap();
        // It runs, or waits for something else: it stays where it is, and does not sleep afterwards.
        sleeper.wake_on(one);
        assert_eq!(threads::affinity_set(tid).unwrap(), cpus);
        go.store(true, Ordering::Relaxed);
        assert_eq!(thread.join().unwrap(), cpus);
        // One that rests comes along.
        sleeper.resting.store(true, Ordering::Relaxed);
        sleeper.tid.store(threads::own_tid(), Ordering::Relaxed);
        sleeper.wake_on(other);
        assert_eq!(threads::affinity_set(threads::own_tid()).unwrap(), CpuSet::of(other));
        threads::set_affinity_set(threads::own_tid(), &cpus).unwrap();
    }
}
