//! The thread that calls membarrier while that is slow, so that no other thread waits for a CPU that does not answer.
//!
//! The kernel waits for the other CPUs actively, with preemption off: nothing else runs on the calling CPU until the
//! last CPU has answered. So the thread stays off the CPUs from which it is asked. Once it knows which CPU is late,
//! it moves there, unless requests come from that CPU and another CPU is quiet. On the late CPU the thread runs only
//! when that CPU runs; then its calls are quick, and no other thread is held up.
//!
//! In one round, the thread calls membarrier for one CPU after another and times each call, which shows which CPU is
//! late. Nobody relies on these calls as fences. The fence is the call for all CPUs at the end of the round, which is
//! usually quick because the late CPU has just answered.
//!
//! A round may also be slow because other threads use the thread's CPU. Then only the time that membarrier itself
//! took counts, and no CPU is reported as late.
//!
//! The thread starts at the first hand-over, and sleeps while callers make their own calls. It blocks all signals.

use super::LateCpu;
use super::latency::{Crowd, Latencies, Verdict};
use super::{Ticket, Wait, wait};
use crate::futex::{self, Lock};
use crate::options::CALL_LIMIT_NS;
use crate::platform::{Executed, cpus, membarrier, now_ns, spawn, thread_cpu_ns};
use crate::units::MILLISECOND_NS;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The longest sleep of a caller that waits for the thread: the thread may have given the calls back meanwhile.
pub(super) const LONGEST_NAP_NS: u64 = 10 * MILLISECOND_NS;

/// While the thread answers quickly, a call that retires waits at most this long for its answer: several times the
/// cost of a wake-up and a membarrier.
pub(super) const PATIENCE_NS: u64 = MILLISECOND_NS / 10;

/// Whether the last round was quick, and no caller has waited in vain since.
static QUICK: AtomicBool = AtomicBool::new(false);
/// Whether the thread makes the calls.
static CALLS: AtomicBool = AtomicBool::new(false);
static STARTED: Lock<bool> = Lock::new(false);
/// Changes with each request. The thread sleeps on it.
static ASKED: AtomicU32 = AtomicU32::new(0);
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// When the oldest request was made that no round has taken up yet; 0 if there is none.
static ASKED_AT_NS: AtomicU64 = AtomicU64::new(0);
/// The CPUs from which callers that must not wait have asked since the hand-over.
static ASKERS: cpus::Shared = cpus::Shared::new();
/// Until this time, callers measure how much of each call is waiting.
static WATCH_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
static LATENCIES: Lock<Latencies> = Lock::new(Latencies::new());

/// The CPU whose answer the thread waits for; otherwise the CPU on which it runs.
static AT_CPU: AtomicUsize = AtomicUsize::new(0);
/// When the current round was asked for; 0 if there is none.
static ROUND_FROM_NS: AtomicU64 = AtomicU64::new(0);
/// How many rounds were slow. Of the last slow one: which CPU was late, and how long the round took.
static SLOW_ROUNDS: AtomicU64 = AtomicU64::new(0);
static LAST_CPU: AtomicUsize = AtomicUsize::new(0);
static LAST_NS: AtomicU64 = AtomicU64::new(0);

/// Whether the thread makes the calls, because they are slow or because a domain wants it.
pub(crate) fn calls() -> bool {
    // Acquire pairs with the Release in `hand_over`: the thread is there.
    CALLS.load(Ordering::Acquire)
}

/// Whether the thread is expected to answer at once.
pub(super) fn answers() -> bool {
    QUICK.load(Ordering::Relaxed)
}

/// Notes that the thread did not answer in time.
pub(super) fn note_no_answer() {
    QUICK.store(false, Ordering::Relaxed);
}

/// Keeps the thread off the caller's CPU, so that it does not hold up the caller.
pub(super) fn keep_off() {
    ASKERS.add(cpus::current());
}

/// Asks the thread for a round, without waiting for it.
pub(super) fn ask() {
    let _ = ASKED_AT_NS.compare_exchange(0, now_ns(), Ordering::SeqCst, Ordering::Relaxed);
    ASKED.fetch_add(1, Ordering::SeqCst);
    // SeqCst, against the thread, which looks at the requests and then says that it sleeps: one of the two sees the other.
    if ASLEEP.load(Ordering::SeqCst) {
        futex::wake(&ASKED, 1);
    }
}

/// What the caller has executed before its call, if calls are being measured.
pub(super) fn watch(now_ns: u64) -> Option<Executed> {
    (now_ns < WATCH_UNTIL_NS.load(Ordering::Relaxed)).then(Executed::by_caller)
}

/// Records a call that took longer than the caller's limit. `watched` is what `watch` returned before the call.
#[cold]
pub(super) fn note_slow_call(now_ns: u64, limit_ns: u64, latency_ns: u64, watched: Option<&Executed>) {
    let waited_ns = watched.map(|before| before.waited_ns(latency_ns));
    // If another thread holds the lock, do not wait: the next slow call is recorded.
    let Some(mut latencies) = LATENCIES.try_lock() else { return };
    if calls() {
        return;
    }
    match latencies.called(now_ns, limit_ns, latency_ns, waited_ns) {
        Verdict::Noise => {}
        Verdict::Watch(until_ns) => WATCH_UNTIL_NS.store(until_ns, Ordering::Relaxed),
        Verdict::HandOver => hand_over(),
    }
}

/// Hands the calls over to the thread although none was slow.
#[cold]
pub(super) fn hand_over_ahead() {
    let mut latencies = LATENCIES.lock();
    if !calls() {
        latencies.handed_over_ahead(now_ns(), CALL_LIMIT_NS);
        hand_over();
    }
}

/// Hands the calls over to the thread. The caller holds the lock of `LATENCIES`, so that there is one hand-over at a
/// time. If the thread cannot be started, callers keep making the calls.
fn hand_over() {
    // Under the lock, so that nobody hands over to a thread that does not exist yet. Callers come here seldom.
    let mut started = STARTED.lock();
    *started = *started || spawn("rcu-fence", serve).is_ok();
    if !*started {
        return;
    }
    drop(started);
    ASKERS.clear();
    QUICK.store(false, Ordering::Relaxed);
    // Release pairs with the Acquire in `calls`.
    CALLS.store(true, Ordering::Release);
    keep_off();
    ask();
}

/// What the thread does: a round for each request, also for one that comes just after it gave the calls back. While
/// it makes the calls, it also probes on its own.
fn serve() {
    let (mut place, mut crowd) = (Place::default(), Crowd::default());
    loop {
        let seen = ASKED.load(Ordering::SeqCst);
        let asked_at_ns = ASKED_AT_NS.swap(0, Ordering::SeqCst);
        let from_ns = if asked_at_ns > 0 {
            asked_at_ns
        } else {
            let due_ns = calls().then(|| LATENCIES.lock().next_probe_ns());
            ASLEEP.store(true, Ordering::SeqCst);
            futex::wait(&ASKED, seen, due_ns.map(|due_ns| due_ns.saturating_sub(now_ns()).max(1)));
            ASLEEP.store(false, Ordering::SeqCst);
            match due_ns {
                Some(due_ns) if ASKED.load(Ordering::SeqCst) == seen && due_ns <= now_ns() => due_ns,
                _ => continue,
            }
        };
        // Set this before moving: the thread may have to wait for the CPU that it moves to.
        ROUND_FROM_NS.store(from_ns, Ordering::Relaxed);
        place.choose();
        place.late = round(from_ns, &mut crowd).or(place.late);
        ROUND_FROM_NS.store(0, Ordering::Relaxed);
    }
}

/// Makes one round, which was asked for at `from_ns`. If it was slow, returns the CPU that was late.
fn round(from_ns: u64, crowd: &mut Crowd) -> Option<usize> {
    let (mut late, mut longest_ns) = (cpus::current(), 0);
    let round = Executed::by_caller();
    for cpu in 0..cpus::count() {
        AT_CPU.store(cpu, Ordering::Relaxed);
        let (start_ns, before_ns) = (now_ns(), thread_cpu_ns());
        membarrier::barrier_on(cpu);
        // Counts CPU time, because membarrier waits actively. If the thread slept, it queued behind another caller's
        // call, which may wait for any CPU.
        let waited_ns = (now_ns() - start_ns).min(thread_cpu_ns() - before_ns);
        if waited_ns > longest_ns {
            (late, longest_ns) = (cpu, waited_ns);
        }
    }
    let here = cpus::current();
    AT_CPU.store(here, Ordering::Relaxed);
    let before_ns = thread_cpu_ns();
    let fence = wait(Ticket::new(), Wait { for_others: true, ..Wait::DEFAULT });
    let waited_ns = thread_cpu_ns() - before_ns;
    let latency_ns = now_ns() - from_ns;
    let mut latencies = LATENCIES.lock();
    let is_slow = |ns| latencies.is_slow(ns);
    QUICK.store(!is_slow(latency_ns), Ordering::Relaxed);
    let (late, took_ns) = if is_slow(longest_ns) {
        (Some(late), latency_ns)
    } else if is_slow(waited_ns) || round.has_slept() {
        // A CPU was descheduled after it had answered, or another caller's call was in the way. The next round finds
        // out which CPU it is.
        (None, latency_ns)
    } else if is_slow(latency_ns) && crowd.is_at(here, now_ns(), || cpus::busy_ns(here)) {
        // Other threads used this CPU. membarrier itself was quick.
        (None, waited_ns)
    } else {
        // No CPU kept the thread waiting. If the round was slow, this CPU itself did not run.
        (Some(here), latency_ns)
    };
    let slow = is_slow(took_ns);
    // If membarrier is refused, waiting for the thread is pointless too.
    if latencies.round(now_ns(), took_ns) || fence.is_err() {
        CALLS.store(false, Ordering::Release);
    }
    drop(latencies);
    late.filter(|_| slow).inspect(|&late| {
        LAST_CPU.store(late, Ordering::Relaxed);
        LAST_NS.store(latency_ns, Ordering::Relaxed);
        SLOW_ROUNDS.fetch_add(1, Ordering::Relaxed);
    })
}

/// The CPUs that the thread may run on.
#[derive(Default)]
struct Place {
    /// The CPU that was late last.
    late: Option<usize>,
    /// The late CPU and the askers for which the place was chosen.
    chosen_for: Option<(Option<usize>, cpus::Set)>,
    bound: Option<cpus::Set>,
}

impl Place {
    /// Moves to the late CPU if that is known, and off the CPUs from which requests come; always within the CPUs that
    /// the process's threads may use.
    fn choose(&mut self) {
        let askers = ASKERS.get();
        let known = Some((self.late, askers));
        if self.chosen_for == known {
            return;
        }
        self.chosen_for = known;
        let possible = cpus::of_process();
        let quiet = possible.without(&askers);
        let chosen = match self.late {
            Some(late) if quiet.has(late) => cpus::Set::of(late),
            _ if !quiet.is_empty() => quiet,
            Some(late) if possible.has(late) => cpus::Set::of(late),
            _ => possible,
        };
        if self.bound.as_ref() != Some(&chosen) {
            cpus::bind(&chosen);
            self.bound = Some(chosen);
        }
    }
}

/// The CPU that keeps membarrier waiting now, or that did when it was last slow.
pub(crate) fn late_cpu() -> Option<LateCpu> {
    let began = [&ROUND_FROM_NS, &ASKED_AT_NS].map(|at| at.load(Ordering::Relaxed));
    let waiting_ns =
        began.into_iter().filter(|&at| at > 0 && calls()).map(|at| now_ns().saturating_sub(at)).max();
    let waiting_ns = waiting_ns.filter(|&ns| LATENCIES.lock().is_slow(ns)).unwrap_or(0);
    let times = SLOW_ROUNDS.load(Ordering::Relaxed);
    (times > 0 || waiting_ns > 0).then(|| LateCpu {
        cpu: if waiting_ns > 0 { &AT_CPU } else { &LAST_CPU }.load(Ordering::Relaxed),
        waiting_ns,
        last_ns: LAST_NS.load(Ordering::Relaxed),
        times,
    })
}

/// For the child of a fork: the thread exists in the parent alone.
pub(super) fn reset_after_fork() {
    // SAFETY: if another thread held the lock, it is in the parent.
    unsafe { STARTED.reset_after_fork(false) };
    *STARTED.lock() = false;
    CALLS.store(false, Ordering::Relaxed);
    ASKED_AT_NS.store(0, Ordering::Relaxed);
    ROUND_FROM_NS.store(0, Ordering::Relaxed);
    ASLEEP.store(false, Ordering::Relaxed);
    WATCH_UNTIL_NS.store(0, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { LATENCIES.reset_after_fork(Latencies::new()) };
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
