//! The part of a domain that readers and grace periods share: tokens, the readers' records, the hazard slots, and
//! waiting for them.
//!
//! It holds no garbage. It lives as long as the domain or any thread that still remembers a record of it.

use crate::awaited::Awaited;
use crate::epoch::{Acknowledged, Clock, holds_up};
use crate::fence::{self, Complete, NoFence, Response};
use crate::freeing::PutAside;
use crate::futex::{self, Lock};
use crate::hazard::Cell;
use crate::histogram::Recorder;
use crate::late::{Hook, LateReader};
use crate::mode::Modes;
use crate::options::{Help, Options};
use crate::platform::{now_ns, thread_id};
use crate::pool::Pool;
use crate::reader_record::Record;
use crate::retired::discard;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence as full_fence};
use crate::sync::yield_now;
use crate::trace;
use crate::units::MILLISECOND_NS;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How often a waiter looks at the readers before it yields or sleeps: longer than a short section, shorter than
/// going to sleep and waking up.
const SPINS: u32 = if cfg!(shuttle) { 1 } else { 100 };
/// First and longest sleep of a waiter that may miss its wake-up: without membarrier nothing orders a reader's exit
/// against the waiter's request.
const NAP_NS: u64 = 50_000;
const LONGEST_NAP_NS: u64 = MILLISECOND_NS;
/// Longest wait for a fence before a waiter checks whether it should go on.
const LOOK_NS: u64 = 10 * MILLISECOND_NS;

fn soon(deadline_ns: Option<u64>) -> Option<u64> {
    let look_ns = now_ns().saturating_add(LOOK_NS);
    Some(deadline_ns.map_or(look_ns, |d| d.min(look_ns)))
}

/// See the text at the top of this file.
pub(crate) struct Core {
    pub(crate) clock: Clock,
    pub(crate) acks: Acknowledged,
    pub(crate) modes: Modes,
    /// Fences that writers have asked for without waiting.
    pub(crate) awaited: Awaited,
    pub(crate) readers: Pool<Record>,
    pub(crate) hazards: Pool<Cell>,
    /// Changes whenever a reader that was asked to wake writers leaves its section.
    pub(crate) event: AtomicU32,
    /// The domain has no handle left.
    pub(crate) closed: AtomicBool,
    pub(crate) help: Help,
    /// How long a waiting writer spins before it sleeps.
    pub(crate) patience_ns: u64,
    /// A writer's call of membarrier counts as slow from this duration on.
    pub(crate) call_limit_ns: u64,
    pub(crate) limit_readers: usize,
    pub(crate) limit_slots: usize,
    /// How many restartable sections ran as epoch sections instead.
    pub(crate) fallbacks: AtomicU64,
    pub(crate) durations: Recorder,
    /// Taken out when the domain ends: the core may be freed later, on a thread where no user code may run.
    pub(crate) hook: Lock<Option<Arc<Hook>>>,
    /// Whether membarrier works, so that it can stand in for the fence in a reader's exit.
    asymmetric: bool,
}

impl Core {
    /// `asymmetric` says whether membarrier works on this machine.
    pub(crate) fn new(options: &Options, asymmetric: bool) -> Self {
        let (modes, mode) = Modes::new(options.fencing, asymmetric);
        Self {
            clock: Clock::new(mode),
            acks: Acknowledged::default(),
            modes,
            awaited: Awaited::default(),
            readers: Pool::new(),
            hazards: Pool::new(),
            event: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            help: options.help,
            patience_ns: options.patience_ns,
            // A shuttle model has no clock, so no call may count as slow.
            call_limit_ns: if cfg!(shuttle) { u64::MAX } else { options.call_limit_ns },
            limit_readers: options.limit_readers,
            limit_slots: options.limit_slots,
            fallbacks: AtomicU64::new(0),
            durations: Recorder::new(),
            hook: Lock::new(None),
            asymmetric,
        }
    }

    /// Returns a token for everything that the caller has unlinked. Its fence is complete or has been asked for.
    pub(crate) fn start(&self) -> u64 {
        self.start_timed().0
    }

    /// Returns a token for everything that the caller has unlinked, and its fence. There is no fence yet if it was
    /// only asked for, or if the kernel refuses it.
    pub(crate) fn start_timed(&self) -> (u64, Option<Complete>) {
        let token = self.clock.tick();
        let fence = match self.order() {
            Ok(Response::Complete(fence)) => {
                self.acks.fence_done(token);
                Some(fence)
            }
            Ok(Response::Asked(ticket)) => {
                self.awaited.add(token, ticket);
                None
            }
            Err(NoFence) => None,
        };
        (token, fence)
    }

    /// Waits for the fence of `token`, at most until `deadline_ns`. Returns whether the fence is complete.
    pub(crate) fn wait_for_fence(&self, token: u64, deadline_ns: Option<u64>) -> Result<bool, NoFence> {
        self.note_served();
        if self.acks.is_fenced(token) {
            return Ok(true);
        }
        full_fence(Ordering::SeqCst);
        if self.modes.writers_need_barrier() && fence::barrier_until(deadline_ns)?.is_none() {
            return Ok(false);
        }
        self.acks.fence_done(token);
        Ok(true)
    }

    /// The writers' half of the fence: a section that began before this either sees the writer's unlink or is seen by
    /// the writer's scan.
    fn order(&self) -> Result<Response, NoFence> {
        // This fence has two duties. It precedes the load of the state, see `mode.rs`. And where readers are fenced, it
        // pairs with the fence in `epoch::enter`: whichever of the two fences comes second sees what precedes the other.
        full_fence(Ordering::SeqCst);
        let order = if self.modes.writers_need_barrier() {
            fence::request(self.call_limit_ns)?
        } else {
            Response::Complete(Complete::at_once())
        };
        self.modes.observe(&self.clock.mode, fence::thread::calls());
        Ok(order)
    }

    pub(crate) fn is_fenced(&self, token: u64) -> bool {
        self.acks.is_fenced(token)
    }

    /// Whether a fence that the domain has asked for is still incomplete.
    pub(crate) fn awaits_fence(&self) -> bool {
        self.note_served();
        self.awaited.any()
    }

    /// Records which of the fences that were asked for are complete by now.
    pub(crate) fn note_served(&self) {
        if let Some(token) = self.awaited.take_served(|token| self.acks.is_fenced(token)) {
            self.acks.fence_done(token);
        }
    }

    /// Whether all sections that could see what `token` was taken for have ended. Never blocks.
    pub(crate) fn check(&self, token: u64) -> bool {
        if self.acks.has_passed(token) {
            return true;
        }
        self.note_served();
        self.acks.scan(|| self.readers.iter().map(|r| &r.word)) >= token
    }

    pub(crate) fn late(&self, token: u64) -> impl Iterator<Item = &Record> {
        self.readers.iter().filter(move |r| holds_up(r.word.load(Ordering::Acquire), token))
    }

    /// Looks at the readers for at least `patience_ns`, and helps late ones; gives up at once if the caller is one of
    /// them. Returns whether `token` has passed.
    pub(crate) fn check_patiently(&self, token: u64, patience_ns: u64) -> bool {
        if self.check(token) {
            return true;
        }
        if self.held_up_by_caller(token) {
            return false;
        }
        let end_ns = now_ns().saturating_add(patience_ns);
        loop {
            self.help(token);
            for _ in 0..SPINS {
                if self.check(token) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if now_ns() >= end_ns {
                return false;
            }
            // A late reader may be waiting for this very CPU.
            yield_now();
        }
    }

    /// Records which readers are late, calls the hook, and asks readers to yield if the domain's policy says so.
    fn help(&self, token: u64) {
        let now_ns = now_ns();
        self.late(token).for_each(|r| self.note_late(r, now_ns));
        if self.help == Help::Yield {
            self.readers.iter().filter(|r| r.has_owner()).for_each(|r| r.ask_to_yield(token));
        }
    }

    /// Waits until `token` has passed.
    ///
    /// # Panics
    /// As `wait_until`, and where the kernel refuses membarrier.
    pub(crate) fn wait(&self, token: u64) {
        if let Err(no_fence) = self.wait_until(token, None) {
            panic!("{no_fence}");
        }
    }

    /// Waits until `token` has passed, at most until `deadline_ns`. Returns whether it has passed.
    ///
    /// # Panics
    /// If the calling thread itself holds up the token, because it would wait for ever.
    pub(crate) fn wait_until(&self, token: u64, deadline_ns: Option<u64>) -> Result<bool, NoFence> {
        self.wait_while(token, deadline_ns, || true)
    }

    /// As `wait_until`, but only while `go_on` returns true. The code that makes it return false must announce
    /// `event` afterwards.
    ///
    /// # Panics
    /// As `wait_until`.
    pub(crate) fn wait_while(
        &self,
        token: u64,
        deadline_ns: Option<u64>,
        go_on: impl Fn() -> bool,
    ) -> Result<bool, NoFence> {
        while !self.wait_for_fence(token, soon(deadline_ns))? {
            if deadline_ns.is_some_and(|d| now_ns() >= d) || !go_on() {
                return Ok(false);
            }
        }
        let left_ns = deadline_ns.map_or(u64::MAX, |d| d.saturating_sub(now_ns()));
        if self.check_patiently(token, left_ns.min(self.patience_ns)) {
            return Ok(true);
        }
        let mut nap_ns = NAP_NS;
        loop {
            let seen = self.event.load(Ordering::SeqCst);
            self.help(token);
            self.late(token).for_each(Record::ask_to_wake);
            // A reader's exit stores its word and then loads what it was asked to do. After membarrier, either the
            // reader sees the request or this thread sees the reader's word.
            let reliable = self.asymmetric
                && self.modes.writers_need_barrier()
                && fence::barrier_until(soon(deadline_ns))?.is_some();
            if self.check(token) {
                return Ok(true);
            }
            assert!(
                !self.held_up_by_caller(token),
                "deadlock: a grace period is awaited within a section of its domain"
            );
            let now_ns = now_ns();
            if deadline_ns.is_some_and(|d| now_ns >= d) || !go_on() {
                return Ok(false);
            }
            let nap = (!reliable).then_some(nap_ns);
            let left = [deadline_ns.map(|d| d - now_ns), nap, self.hook_due_ns(token, now_ns)]
                .into_iter()
                .flatten()
                .min();
            futex::wait(&self.event, seen, left);
            nap_ns = (nap_ns * 2).min(LONGEST_NAP_NS);
        }
    }

    /// Whether the calling thread is in a section that holds up `token`.
    pub(crate) fn held_up_by_caller(&self, token: u64) -> bool {
        let me = thread_id();
        self.late(token).any(|r| r.is_owned_by(me))
    }

    /// Records that a grace period has ended, `ns` after it began. Must not be called under a lock.
    pub(crate) fn note_duration(&self, ns: u64) {
        self.durations.record(ns);
        self.report_duration(ns);
    }

    /// As `note_duration`, for a duration that is already recorded.
    pub(crate) fn report_duration(&self, ns: u64) {
        trace::grace_period(ns, || self.hook().map(|hook| hook.limit_ns));
    }

    /// The readers that hold up `token`.
    pub(crate) fn late_readers(&self, token: u64) -> Vec<LateReader> {
        let now_ns = now_ns();
        self.late(token).map(|r| LateReader::of(r, now_ns)).collect()
    }

    /// Records that `record` is late: from now on, unless it was late already. Calls the hook once per section.
    pub(crate) fn note_late(&self, record: &Record, now_ns: u64) {
        let word = record.word.load(Ordering::Relaxed);
        if word == 0 {
            return;
        }
        // Relaxed: several scanners may race here, and any of their times will do.
        if record.late_word.load(Ordering::Relaxed) != word {
            record.late_since_ns.store(now_ns, Ordering::Relaxed);
            record.late_word.store(word, Ordering::Relaxed);
        }
        let Some(hook) = self.hook() else { return };
        let late = now_ns.saturating_sub(record.late_since_ns.load(Ordering::Relaxed)) >= hook.limit_ns;
        if late && record.reported_word.swap(word, Ordering::Relaxed) != word {
            // The panic hook has already reported a panic of the user's hook. It must not end the caller, which has
            // objects in hand.
            let _aside = PutAside::begin();
            let call = || (hook.call)(&LateReader::of(record, now_ns));
            if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
                discard(payload);
            }
        }
    }

    pub(crate) fn hook(&self) -> Option<Arc<Hook>> {
        self.hook.lock().clone()
    }

    /// In how many nanoseconds a waiter must look again so that the hook is called in time.
    pub(crate) fn hook_due_ns(&self, token: u64, now_ns: u64) -> Option<u64> {
        let hook = self.hook()?;
        let unreported =
            |r: &&Record| r.reported_word.load(Ordering::Relaxed) != r.word.load(Ordering::Relaxed);
        let due = |r: &Record| {
            let since_ns = r.late_since_ns.load(Ordering::Relaxed);
            since_ns.saturating_add(hook.limit_ns).saturating_sub(now_ns).max(1)
        };
        self.late(token).filter(unreported).map(due).min()
    }

    /// The addresses that slots pin, sorted. Returns quickly while the domain has no slots.
    pub(crate) fn pinned(&self) -> Vec<*mut ()> {
        if self.hazards.len() == 0 {
            return Vec::new();
        }
        let mut pinned: Vec<_> = self.hazards.iter().map(Cell::pinned).filter(|p| !p.is_null()).collect();
        pinned.sort_unstable();
        pinned
    }
}
