//! The part of a domain that readers and grace periods share. It holds no garbage, and lives as long as a
//! thread remembers a record of it.

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

/// Looks at the readers before a waiter yields or goes to sleep: longer than a short section, less than a
/// sleep and a wake.
const SPINS: u32 = if cfg!(shuttle) { 1 } else { 100 };
/// First and longest sleep of a waiter whose wake-up may get lost, because readers' exits have no fence that
/// membarrier could stand in for.
const NAP_NS: u64 = 50_000;
const LONGEST_NAP_NS: u64 = MILLISECOND_NS;
/// Longest wait for a fence, after which a waiter looks whether it should go on.
const LOOK_NS: u64 = 10 * MILLISECOND_NS;

fn soon(deadline_ns: Option<u64>) -> Option<u64> {
    let look_ns = now_ns().saturating_add(LOOK_NS);
    Some(deadline_ns.map_or(look_ns, |d| d.min(look_ns)))
}

/// See the module's text.
pub(crate) struct Core {
    pub(crate) clock: Clock,
    pub(crate) acks: Acknowledged,
    pub(crate) modes: Modes,
    /// Fences that the domain's writers did not wait for.
    pub(crate) awaited: Awaited,
    pub(crate) readers: Pool<Record>,
    pub(crate) hazards: Pool<Cell>,
    /// Changes whenever a reader that was asked to has left its section.
    pub(crate) event: AtomicU32,
    /// No handle of the domain is left.
    pub(crate) closed: AtomicBool,
    pub(crate) help: Help,
    /// How long a writer that waits is active before it sleeps.
    pub(crate) patience_ns: u64,
    /// From when on a writer's call of membarrier is slow.
    pub(crate) call_limit_ns: u64,
    pub(crate) limit_readers: usize,
    pub(crate) limit_slots: usize,
    /// Restartable sections that ran as epochs.
    pub(crate) fallbacks: AtomicU64,
    pub(crate) durations: Recorder,
    /// Taken out as the domain ends: a core may go anywhere, also where no user's code may run.
    pub(crate) hook: Lock<Option<Arc<Hook>>>,
    /// Whether membarrier can stand in for a fence in readers' exits.
    asymmetric: bool,
}

impl Core {
    /// `asymmetric`: whether membarrier works on this machine.
    pub(crate) fn new(options: &Options, asymmetric: bool) -> Self {
        let (modes, mode) = Modes::new(options.fencing, asymmetric);
        Self {
            clock: Clock::new(mode),
            acks: Acknowledged::new(),
            modes,
            awaited: Awaited::default(),
            readers: Pool::new(),
            hazards: Pool::new(),
            event: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            help: options.help,
            patience_ns: options.patience_ns,
            // A model has no clock.
            call_limit_ns: if cfg!(shuttle) { u64::MAX } else { options.call_limit_ns },
            limit_readers: options.limit_readers,
            limit_slots: options.limit_slots,
            fallbacks: AtomicU64::new(0),
            durations: Recorder::new(),
            hook: Lock::new(None),
            asymmetric,
        }
    }

    /// A token for what the caller has unlinked, its fence complete or asked for.
    pub(crate) fn start(&self) -> u64 {
        self.start_timed().0
    }

    /// A token for what the caller has unlinked, and its fence; none where that is awaited, or the kernel refuses it.
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

    /// Waits for the fence of `token`, until `deadline_ns` at most. Returns whether the fence is complete.
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

    /// The writers' side of the readers' fence: after it, a section that began before sees the writer's
    /// unlink or is seen by the writer's scan.
    fn order(&self) -> Result<Response, NoFence> {
        // Two duties. It precedes the read of the state, see `mode.rs`. And where the readers are fenced, it
        // pairs with the fence in `epoch::enter`: whichever of the two comes second sees what precedes the
        // other.
        full_fence(Ordering::SeqCst);
        let order = if self.modes.writers_need_barrier() {
            fence::request(self.call_limit_ns)?
        } else {
            Response::Complete(Complete::at_once())
        };
        self.modes.observe(&self.clock.mode, fence::thread::calls());
        Ok(order)
    }

    /// Whether the fence of `token` is complete.
    pub(crate) fn is_fenced(&self, token: u64) -> bool {
        self.acks.is_fenced(token)
    }

    /// Whether the domain has asked for a fence that is not complete yet.
    pub(crate) fn awaits_fence(&self) -> bool {
        self.note_served();
        self.awaited.any()
    }

    /// Notes awaited fences that are complete by now.
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

    /// Readers that hold up `token`.
    pub(crate) fn late(&self, token: u64) -> impl Iterator<Item = &Record> {
        self.readers.iter().filter(move |r| holds_up(r.word.load(Ordering::Acquire), token))
    }

    /// Looks at the readers for `patience_ns` at least, and helps late ones; not if the caller is one of
    /// them. Whether `token` has passed.
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
            // A late reader may wait for this very CPU.
            yield_now();
        }
    }

    /// Notes who is late, tells the hook, and asks readers to yield where the domain's policy says so.
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

    /// Waits until `token` has passed or `deadline_ns` is over. Whether it has passed.
    ///
    /// # Panics
    /// When the calling thread itself holds up the token: it would wait for ever.
    pub(crate) fn wait_until(&self, token: u64, deadline_ns: Option<u64>) -> Result<bool, NoFence> {
        self.wait_while(token, deadline_ns, || true)
    }

    /// As `wait_until`, and only while `go_on` is true. Whoever makes it false announces `event` afterwards.
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
            // A reader's exit stores its word and then loads what it is asked. After membarrier, either it
            // sees the request or this thread sees its word.
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

    /// Notes that a grace period has ended, `ns` after it began. Not under a lock.
    pub(crate) fn note_duration(&self, ns: u64) {
        self.durations.record(ns);
        self.report_duration(ns);
    }

    /// As `note_duration`, for one that is recorded already.
    pub(crate) fn report_duration(&self, ns: u64) {
        trace::grace_period(ns, || self.hook().map(|hook| hook.limit_ns));
    }

    /// Who holds up `token`.
    pub(crate) fn late_readers(&self, token: u64) -> Vec<LateReader> {
        let now_ns = now_ns();
        self.late(token).map(|r| LateReader::of(r, now_ns)).collect()
    }

    /// Notes that `record` is late, since now unless it is known. Calls the hook, once per section.
    pub(crate) fn note_late(&self, record: &Record, now_ns: u64) {
        let word = record.word.load(Ordering::Relaxed);
        if word == 0 {
            return;
        }
        // Relaxed: scanners race here, and any of their times will do.
        if record.late_word.load(Ordering::Relaxed) != word {
            record.late_since_ns.store(now_ns, Ordering::Relaxed);
            record.late_word.store(word, Ordering::Relaxed);
        }
        let Some(hook) = self.hook() else { return };
        let late = now_ns.saturating_sub(record.late_since_ns.load(Ordering::Relaxed)) >= hook.limit_ns;
        if late && record.reported_word.swap(word, Ordering::Relaxed) != word {
            // The panic hook has reported a panic. It must not end the caller, which has objects in hand.
            let _aside = PutAside::begin();
            let call = || (hook.call)(&LateReader::of(record, now_ns));
            if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
                discard(payload);
            }
        }
    }

    /// The domain's hook.
    pub(crate) fn hook(&self) -> Option<Arc<Hook>> {
        self.hook.lock().clone()
    }

    /// In how many nanoseconds a waiter must look again for the hook's sake.
    pub(crate) fn hook_due_ns(&self, token: u64, now_ns: u64) -> Option<u64> {
        let hook = self.hook()?;
        let unreported =
            |r: &&Record| r.reported_word.load(Ordering::Relaxed) != r.word.load(Ordering::Relaxed);
        let due = |r: &Record| {
            r.late_since_ns
                .load(Ordering::Relaxed)
                .saturating_add(hook.limit_ns)
                .saturating_sub(now_ns)
                .max(1)
        };
        self.late(token).filter(unreported).map(due).min()
    }

    /// The addresses that slots pin, sorted. Empty, and quick, while the domain has no slots.
    pub(crate) fn pinned(&self) -> Vec<*mut ()> {
        if self.hazards.len() == 0 {
            return Vec::new();
        }
        let mut pinned: Vec<_> = self.hazards.iter().map(Cell::pinned).filter(|p| !p.is_null()).collect();
        pinned.sort_unstable();
        pinned
    }
}
