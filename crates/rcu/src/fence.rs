//! The process's one membarrier service.
//!
//! Concurrent callers share calls: one runs membarrier, the others sleep, and a caller is served by any call
//! that started after its request. A call that was under way at the request does not serve it, because it may
//! have passed some CPU before the caller's stores. The sequence number is that of Linux's expedited grace
//! periods: odd while a call runs, and a request at `s` is served at the first even number from `s + 2` on.
//! A caller whose limit is over while it sleeps makes a call of its own (`call_alone`).
//!
//! membarrier waits for every CPU that runs a thread of the process: if a hypervisor has descheduled one, until
//! that runs again. While calls are slow a dedicated thread makes them (`fence/thread.rs`): callers that may block sleep, the
//! others get a ticket.
//!
//! Invariant: when a ticket is served, every thread of the process has executed a full fence since the ticket was made, and
//! every restartable section that was under way at that moment has ended or been started again.

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
use crate::platform::membarrier;
use crate::platform::now_ns;
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
/// The duration of the caller's own call is recorded when this is dropped, off the critical path: the histogram's lines are
/// seldom in the caches.
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
}

impl Drop for Complete {
    fn drop(&mut self) {
        if let Some(ns) = self.call_ns {
            LATENCY.record(ns);
        }
    }
}

/// A fence that was asked for, by the sequence number that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// Covers what the caller has stored before. Does not ask the thread.
    fn new() -> Self {
        // The caller's earlier stores precede the sequence number's load: a call that the caller then sees as not
        // yet started starts after them.
        fence(Ordering::SeqCst);
        Self(served_at(SEQUENCE.load(Ordering::SeqCst)))
    }

    /// Whether the fence is complete.
    pub(crate) fn is_served(self) -> bool {
        // Acquire pairs with the Release in `run`.
        self.is_served_by(SEQUENCE.load(Ordering::Acquire))
    }

    fn is_served_by(self, now: u32) -> bool {
        // Wrapping: a ticket lies at most 3 ahead. One that is first looked at after 2^30 calls seems not to be served; a later
        // token's fence ends that (`awaited.rs`).
        now.wrapping_sub(self.0) as i32 >= 0
    }
}

/// What a caller gets that must not wait.
pub(crate) enum Response {
    /// A fence.
    Complete(Complete),
    /// The promise of one.
    Asked(Ticket),
}

/// Executes a fence on behalf of all threads, or asks the thread for one while calls are slow. A call that takes longer than
/// `limit_ns` counts as slow. With 0 the thread makes all calls; with `u64::MAX` the caller waits for the fence.
///
/// Requires that the process is registered for membarrier.
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
        // Handed over meanwhile.
        None if thread::calls() && !is_refused() => Ok(Response::Asked(ask())),
        // Another caller's call takes longer than the limit.
        None => Ok(Response::Complete(call_alone(limit_ns)?)),
    }
}

/// A call that serves nobody else, for a caller that has no time left to wait for another's.
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

/// Waits for a moment for the fence that the thread was asked for, if its last answer was quick.
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

/// Executes a fence on behalf of all threads; none if `deadline_ns` passes first. A call of the caller's own is not cut short.
///
/// Requires that the process is registered for membarrier.
pub(crate) fn barrier_until(deadline_ns: Option<u64>) -> Result<Option<Complete>, NoFence> {
    wait(Ticket::new(), Wait { deadline_ns, ..Wait::DEFAULT })
}

/// How a fence is waited for.
struct Wait {
    /// Until when it sleeps at most; a call of its own is not cut short.
    deadline_ns: Option<u64>,
    /// How long it sleeps at most; and a call of its own that takes longer is slow.
    limit_ns: u64,
    /// The caller is the thread that calls for others.
    for_others: bool,
}

impl Wait {
    const DEFAULT: Self = Self { deadline_ns: None, limit_ns: u64::MAX, for_others: false };

    /// When a wait ends that began at `from_ns`.
    fn end_ns(&self, from_ns: u64) -> Option<u64> {
        let limit_ns = Some(self.limit_ns).filter(|&ns| ns < u64::MAX);
        limit_ns.map(|ns| from_ns.saturating_add(ns)).into_iter().chain(self.deadline_ns).min()
    }
}

/// Waits until `ticket` is served, by a call of the caller's own where nobody else makes one.
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
            // The thread may give the calls back between the look and the sleep.
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

/// One call, by the thread that made the sequence number odd. A call that is refused serves nobody: the others find the
/// number as it was, and try themselves.
fn run(before: u32) -> Result<(), NoFence> {
    let served = membarrier::barrier();
    let after = if served { before.wrapping_add(2) } else { before };
    // Release pairs with the Acquire in `wait`: those served see all that the call made visible. SeqCst,
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

fn sleep(number: u32, at_most_ns: Option<u64>) {
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    futex::wait(&SEQUENCE, number, at_most_ns);
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
    thread::reset_after_fork();
}

#[cfg(test)]
#[path = "fence_tests.rs"]
pub(crate) mod tests;
