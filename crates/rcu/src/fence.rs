//! The membarrier service that the whole process shares.
//!
//! Concurrent callers share calls: one thread runs membarrier and the others sleep. A call serves all requests that
//! were made before it started. It does not serve a request made while it was under way, because it may already have
//! passed some CPU before the requester's stores. The sequence number works like that of Linux's expedited grace
//! periods: it is odd while a call runs, and a request made at `s` is served at the first even number from `s + 2`
//! on. A caller that reaches its time limit while it sleeps makes a call of its own (`call_alone`).
//!
//! membarrier waits for every CPU that runs a thread of the process. If a hypervisor has descheduled one, membarrier
//! waits until that CPU runs again. While calls are slow, a dedicated thread makes them (`fence/thread.rs`): callers
//! that may block sleep, and the others get a ticket.
//!
//! Invariant: when a ticket is served, every thread of the process has executed a full fence since the ticket was made,
//! and every restartable section that was under way at that moment has ended or been restarted. The process must be
//! registered for membarrier.

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(any(shuttle, loom, reprieve_fallback))))]
mod latency;
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(any(shuttle, loom, reprieve_fallback))))]
pub(crate) mod thread;
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    not(any(shuttle, loom, reprieve_fallback))
)))]
#[path = "fence/no_thread.rs"]
pub(crate) mod thread;

mod late_cpu;
pub use late_cpu::LateCpu;

#[cfg(all(test, not(loom)))]
mod aim_tests;

use crate::futex;
use crate::histogram::{Histogram, Recorder};
use crate::options::CALL_LIMIT_NS;
use crate::platform::{membarrier, now_ns};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// Odd while a call runs. Each call adds 2.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);
/// How many threads sleep on `SEQUENCE`.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);
/// Whether the kernel refused the last call.
static REFUSED: AtomicBool = AtomicBool::new(false);
static LATENCY: Recorder = Recorder::new();

/// The kernel refuses membarrier, which it allowed before. Without this fence no grace period can end.
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

/// A completed fence on behalf of all threads.
///
/// The duration of the caller's own call is recorded when this is dropped, off the critical path, because the
/// histogram's cache lines are seldom in the caches.
pub(crate) struct Complete {
    /// When the caller asked for it.
    pub(crate) from_ns: u64,
    /// When it was complete.
    at_ns: u64,
    call_ns: Option<u64>,
}

impl Complete {
    /// A fence that needed no call.
    pub(crate) fn at_once() -> Self {
        let now_ns = now_ns();
        Self { from_ns: now_ns, at_ns: now_ns, call_ns: None }
    }

    /// When the caller's own call ended, if it needed one.
    pub(crate) fn call_end_ns(&self) -> Option<u64> {
        self.call_ns.map(|_| self.at_ns)
    }
}

impl Drop for Complete {
    fn drop(&mut self) {
        if let Some(ns) = self.call_ns {
            LATENCY.record(ns);
        }
    }
}

/// A fence that was asked for: the sequence number at which it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// Covers everything that the caller has stored before. Does not ask the thread for a call.
    fn new() -> Self {
        // The caller's earlier stores precede the load of the sequence number. So a call that the caller sees as not
        // yet started starts after them.
        fence(Ordering::SeqCst);
        Self(served_at(SEQUENCE.load(Ordering::SeqCst)))
    }

    pub(crate) fn is_served(self) -> bool {
        // Acquire pairs with the Release in `run`.
        self.is_served_by(SEQUENCE.load(Ordering::Acquire))
    }

    fn is_served_by(self, now: u32) -> bool {
        // Compares with wrap-around: a ticket is at most 3 ahead. A ticket that is first checked after 2^30 calls
        // looks as if it was not served; the fence of a later token ends that (`awaited.rs`).
        now.wrapping_sub(self.0) as i32 >= 0
    }
}

/// What a caller gets that must not wait.
pub(crate) enum Response {
    /// A completed fence.
    Complete(Complete),
    /// A fence that will be completed later.
    Asked(Ticket),
}

/// Executes a fence on behalf of all threads; while calls are slow, asks the thread for one instead. A call that
/// takes longer than `limit_ns` counts as slow. With 0 the thread makes all calls; with `u64::MAX` the caller waits
/// for the fence.
pub(crate) fn request(limit_ns: u64) -> Result<Response, NoFence> {
    if limit_ns == u64::MAX {
        return Ok(Response::Complete(wait(Ticket::new(), Wait::DEFAULT)?.expect("there is no deadline")));
    }
    if limit_ns == 0 && !thread::calls() {
        thread::hand_over_ahead();
    }
    // The thread could not be started.
    let limit_ns = if limit_ns == 0 && !thread::calls() { CALL_LIMIT_NS } else { limit_ns };
    if thread::calls() && !is_refused() {
        let ticket = ask();
        return Ok(answer(ticket, limit_ns)?.map_or(Response::Asked(ticket), Response::Complete));
    }
    match wait(Ticket::new(), Wait { limit_ns, ..Wait::DEFAULT })? {
        Some(fence) => Ok(Response::Complete(fence)),
        // The calls were handed over to the thread meanwhile.
        None if thread::calls() && !is_refused() => Ok(Response::Asked(ask())),
        // Another caller's call takes longer than the limit.
        None => Ok(Response::Complete(call_alone(limit_ns)?)),
    }
}

/// Makes a call that serves nobody else, for a caller that has no time left to wait for another thread's call.
#[cold]
fn call_alone(limit_ns: u64) -> Result<Complete, NoFence> {
    let from_ns = now_ns();
    let watched = thread::watch(from_ns);
    fence(Ordering::SeqCst);
    if !membarrier::barrier() {
        return Err(NoFence);
    }
    let at_ns = now_ns();
    if at_ns - from_ns > limit_ns {
        thread::note_slow_call(at_ns, limit_ns, at_ns - from_ns, watched.as_ref());
    }
    Ok(Complete { from_ns, at_ns, call_ns: Some(at_ns - from_ns) })
}

/// Waits a moment for the fence that the thread was asked for, if its last answer was quick.
fn answer(ticket: Ticket, limit_ns: u64) -> Result<Option<Complete>, NoFence> {
    if limit_ns == 0 || !thread::answers() {
        return Ok(None);
    }
    let deadline_ns = Some(now_ns().saturating_add(limit_ns.min(thread::PATIENCE_NS)));
    let fence = wait(ticket, Wait { deadline_ns, ..Wait::DEFAULT })?;
    if fence.is_none() {
        thread::note_no_answer();
    }
    Ok(fence)
}

/// Asks the thread for a fence, on behalf of a caller that must not wait.
pub(crate) fn ask() -> Ticket {
    let ticket = Ticket::new();
    thread::keep_off();
    thread::ask();
    ticket
}

/// As `barrier_until`, without a deadline.
#[cfg(test)]
pub(crate) fn barrier() -> Result<Complete, NoFence> {
    Ok(wait(Ticket::new(), Wait::DEFAULT)?.expect("there is no deadline"))
}

/// Executes a fence on behalf of all threads. Returns none if `deadline_ns` passes first; but a call that the caller
/// makes itself is not cut short.
pub(crate) fn barrier_until(deadline_ns: Option<u64>) -> Result<Option<Complete>, NoFence> {
    wait(Ticket::new(), Wait { deadline_ns, ..Wait::DEFAULT })
}

/// How to wait for a fence.
struct Wait {
    /// When to stop sleeping. A call of one's own is not cut short.
    deadline_ns: Option<u64>,
    /// How long to sleep at most. A call of one's own that takes longer counts as slow.
    limit_ns: u64,
    /// The caller is the thread that makes calls for others.
    for_others: bool,
}

impl Wait {
    const DEFAULT: Self = Self { deadline_ns: None, limit_ns: u64::MAX, for_others: false };

    /// When a wait that began at `from_ns` ends.
    fn end_ns(&self, from_ns: u64) -> Option<u64> {
        let limit_ns = Some(self.limit_ns).filter(|&ns| ns < u64::MAX);
        limit_ns.map(|ns| from_ns.saturating_add(ns)).into_iter().chain(self.deadline_ns).min()
    }
}

/// Waits until `ticket` is served. If no other thread makes a call, the caller makes one.
fn wait(ticket: Ticket, how: Wait) -> Result<Option<Complete>, NoFence> {
    let from_ns = now_ns();
    let mut start_ns = from_ns;
    loop {
        let now = SEQUENCE.load(Ordering::Acquire);
        if ticket.is_served_by(now) {
            return Ok(Some(Complete { from_ns, at_ns: now_ns(), call_ns: None }));
        }
        let by_thread = thread::calls() && !how.for_others && !is_refused();
        if now % 2 == 1 || by_thread {
            let left_ns = how.end_ns(from_ns).map(|end_ns| end_ns.saturating_sub(now_ns()));
            if left_ns == Some(0) {
                return Ok(None);
            }
            if now.is_multiple_of(2) {
                thread::ask();
            }
            // The thread may give the calls back between this check and the sleep.
            let nap_ns = by_thread.then_some(thread::LONGEST_NAP_NS);
            sleep(now, left_ns.into_iter().chain(nap_ns).min());
            start_ns = now_ns();
        } else if SEQUENCE.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            let watched = (how.limit_ns < u64::MAX).then(|| thread::watch(start_ns)).flatten();
            run(now)?;
            let at_ns = now_ns();
            if at_ns - start_ns > how.limit_ns {
                thread::note_slow_call(at_ns, how.limit_ns, at_ns - start_ns, watched.as_ref());
            }
            return Ok(Some(Complete { from_ns, at_ns, call_ns: Some(at_ns - start_ns) }));
        }
    }
}

/// The sequence number at which a request made at `now` is served.
fn served_at(now: u32) -> u32 {
    now.wrapping_add(3) & !1
}

/// Makes one call, on the thread that made the sequence number odd. A refused call serves nobody: the others find the
/// number unchanged and try themselves.
fn run(before: u32) -> Result<(), NoFence> {
    let served = membarrier::barrier();
    let after = if served { before.wrapping_add(2) } else { before };
    // Release pairs with the Acquire in `wait`: a caller that is served sees everything that the call made visible.
    // SeqCst, against `SLEEPERS`: either this thread sees the sleeper, or the sleeper sees the new number.
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

fn sleep(number: u32, at_most_ns: Option<u64>) {
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    futex::wait(&SEQUENCE, number, at_most_ns);
    SLEEPERS.fetch_sub(1, Ordering::Relaxed);
}

/// The durations of this process's membarrier calls.
pub(crate) fn latency() -> Histogram {
    LATENCY.snapshot()
}

/// For the child of a fork, which does not have the thread that was making a call.
pub(crate) fn reset_after_fork() {
    SEQUENCE.store(0, Ordering::Relaxed);
    SLEEPERS.store(0, Ordering::Relaxed);
    thread::reset_after_fork();
}

#[cfg(test)]
#[path = "fence_tests.rs"]
pub(crate) mod tests;
