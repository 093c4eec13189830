//! The process's one membarrier service.
//!
//! Concurrent callers share calls: one runs membarrier, the others sleep, and a caller is served by any call
//! that started after its request. A call that was under way at the request does not serve it, because it may
//! have passed some CPU before the caller's stores. The sequence number is that of Linux's expedited grace
//! periods: odd while a call runs, and a request at `s` waits for the first even number that is at least two
//! calls' worth away.
//!
//! Invariant: when `barrier` returns, every thread of the process has executed a full fence between the call
//! of `barrier` and its return, and every restartable section that ran at some point between has been started
//! again.

use crate::clock::now_ns;
use crate::futex;
use crate::histogram::{Histogram, Recorder};
use crate::platform::membarrier;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// Odd while a call runs, + 2 per call.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);
/// Threads that sleep on `SEQUENCE`.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);
/// The last call was refused.
static REFUSED: AtomicBool = AtomicBool::new(false);
static LATENCY: Recorder = Recorder::new();

/// The kernel refuses membarrier, which it allowed before: no fence, hence no grace period, can be relied upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoFence;

impl std::fmt::Display for NoFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the kernel refuses membarrier, which it allowed when reprieve-rcu started; let the seccomp filter allow it, \
             or set REPRIEVE_RCU=fence",
        )
    }
}

/// A fence on behalf of all threads that is complete.
///
/// What the caller's own call took is recorded when this is dropped: the histogram's lines are seldom in the
/// caches, and who waits for a fence is in a hurry.
pub(crate) struct Complete {
    /// When the caller asked for it.
    pub(crate) from_ns: u64,
    /// When it was complete.
    at_ns: u64,
    call_ns: Option<u64>,
}

impl Complete {
    /// One that needed no call.
    pub(crate) fn at_once() -> Self {
        let now_ns = now_ns();
        Self { from_ns: now_ns, at_ns: now_ns, call_ns: None }
    }

    /// When the caller's own call ended, if it needed one.
    pub(crate) fn call_end_ns(&self) -> Option<u64> {
        self.call_ns.map(|_| self.at_ns)
    }

    /// How long the caller waited for it.
    pub(crate) fn latency_ns(&self) -> u64 {
        self.at_ns - self.from_ns
    }
}

impl Drop for Complete {
    fn drop(&mut self) {
        if let Some(ns) = self.call_ns {
            LATENCY.record(ns);
        }
    }
}

/// Executes a fence on behalf of all threads.
///
/// Requires that the process is registered for membarrier.
pub(crate) fn barrier() -> Result<Complete, NoFence> {
    let from_ns = now_ns();
    // The caller's earlier stores precede the sequence number's load: a call that the caller then sees as not
    // yet started starts after them.
    fence(Ordering::SeqCst);
    let target = served_at(SEQUENCE.load(Ordering::SeqCst));
    let mut start_ns = from_ns;
    loop {
        let now = SEQUENCE.load(Ordering::Acquire);
        // Wrapping: a target lies at most 3 ahead; a caller that slept through half the range serves itself.
        if now.wrapping_sub(target) as i32 >= 0 {
            return Ok(Complete { from_ns, at_ns: now_ns(), call_ns: None });
        }
        if now % 2 == 1 {
            sleep(now);
            start_ns = now_ns();
        } else if SEQUENCE.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            run(now)?;
            let at_ns = now_ns();
            return Ok(Complete { from_ns, at_ns, call_ns: Some(at_ns - start_ns) });
        }
    }
}

/// The sequence number at which a request made at `now` is served.
fn served_at(now: u32) -> u32 {
    (now | 1).wrapping_add(1).wrapping_add(2 * (now % 2))
}

/// One call, by the thread that made the sequence number odd. A call that is refused serves nobody: the others find the
/// number as it was, and try themselves.
fn run(before: u32) -> Result<(), NoFence> {
    let served = membarrier::barrier();
    let after = if served { before.wrapping_add(2) } else { before };
    // Release pairs with the Acquire in `barrier`: those served see all that the call made visible. SeqCst,
    // against `SLEEPERS`: either this thread sees the sleeper or the sleeper sees the new number.
    SEQUENCE.store(after, Ordering::SeqCst);
    if SLEEPERS.load(Ordering::SeqCst) > 0 {
        futex::wake(&SEQUENCE, i32::MAX);
    }
    if served == REFUSED.load(Ordering::Relaxed) {
        REFUSED.store(!served, Ordering::Relaxed);
    }
    if served { Ok(()) } else { Err(NoFence) }
}

/// Whether the kernel refuses membarrier, which it allowed before.
pub(crate) fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

fn sleep(odd: u32) {
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    futex::wait(&SEQUENCE, odd, None);
    SLEEPERS.fetch_sub(1, Ordering::Relaxed);
}

/// The durations of the membarrier calls of this process.
pub(crate) fn latency() -> Histogram {
    LATENCY.snapshot()
}

/// In the child of a fork: the thread that ran a call is not here.
pub(crate) fn reset_after_fork() {
    SEQUENCE.store(0, Ordering::Relaxed);
    SLEEPERS.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    #[test]
    fn a_call_under_way_does_not_serve() {
        assert_eq!(served_at(0), 2);
        assert_eq!(served_at(1), 4);
        assert_eq!(served_at(4), 6);
        assert_eq!(served_at(7), 10);
        assert_eq!(served_at(u32::MAX), 2);
    }

    #[test]
    fn concurrent_callers_share_calls() {
        if !crate::platform::probe().asymmetric {
            return;
        }
        let (calls, before) = (AtomicU64::new(0), latency().count());
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..500 {
                        barrier().unwrap();
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(calls.load(Ordering::Relaxed), 4_000);
        let made = latency().count() - before;
        assert!(made >= 1);
    }

    /// Whether the thread `tid` sleeps on `SEQUENCE`, by what the kernel says of its system call: the number, then the
    /// arguments (proc_pid_syscall(5)).
    fn sleeps_on_the_sequence(tid: i32) -> bool {
        let call = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap();
        call.split(' ').nth(1) == Some(&format!("{:#x}", std::ptr::from_ref(&SEQUENCE).addr()))
    }

    #[test]
    fn a_caller_that_sleeps_is_woken() {
        if !crate::platform::probe().asymmetric {
            return;
        }
        // A call under way, as of another thread.
        let begin = |now: u32| {
            let free = now.is_multiple_of(2);
            free && SEQUENCE.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        let before = loop {
            let now = SEQUENCE.load(Ordering::SeqCst);
            if begin(now) {
                break now;
            }
            std::thread::yield_now();
        };
        const LIMIT: Duration = Duration::from_secs(20);
        let (send, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            send.send(crate::record::gettid()).unwrap();
            barrier().unwrap();
            send.send(0).unwrap();
        });
        let (tid, begun) = (told.recv().unwrap(), Instant::now());
        while !sleeps_on_the_sequence(tid) && begun.elapsed() < LIMIT {
            std::thread::yield_now();
        }
        let slept = sleeps_on_the_sequence(tid);
        run(before).unwrap();
        assert!(slept, "the caller did not wait for the call under way");
        assert!(told.recv_timeout(LIMIT).is_ok(), "still asleep");
    }
}
