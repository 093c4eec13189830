//! A reader that stalls for two seconds while a writer retires 5,000 objects per second: how much garbage there is at
//! most, and which reader is named, for each kind of section. All cases run at once, in one test.
//!
//! The bounds: a stopped restartable section holds nothing, so that each object is freed by the call that retires it.
//! A guard of a slot holds one object. A section of the third kind holds everything, up to the domain's limits, in
//! objects or in bytes, whatever the domain does at its limits.

mod common;

#[path = "common/stop.rs"]
mod stop;

use reprieve_rcu::{AtLimit, Domain, LateReader, Reader, capabilities};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use stop::{Park, Tracer};

const STALL: Duration = Duration::from_secs(2);
const PER_SECOND: u64 = 5_000;
const BYTES: usize = 100;
/// Far less than is retired meanwhile, which is 10,000 objects and 1 MB.
const LIMIT_OBJECTS: usize = 1_000;
const LIMIT_BYTES: usize = 64_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Read,
    Acquire,
    Lock,
    Online,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stall {
    /// In the handler of a signal that arrived within the section.
    Parked,
    /// By a tracer, within the section.
    Traced,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    stall: Stall,
    at_limit: AtLimit,
    /// Whether the limit is on bytes.
    by_bytes: bool,
}

/// What the threads of one case share.
struct Stage {
    case: Case,
    domain: Domain,
    name: String,
    park: Park,
    tid: AtomicI32,
    /// The reader is within a section.
    inside: AtomicBool,
    end: AtomicBool,
    shared: AtomicPtr<[u8; BYTES]>,
    refused: AtomicU64,
    hooked: Mutex<Vec<LateReader>>,
}

fn object() -> *mut [u8; BYTES] {
    Box::into_raw(Box::new([1; BYTES]))
}

fn spin_for_a_moment() {
    (0..20_000).for_each(|_| std::hint::spin_loop());
}

impl Stage {
    fn new(case: Case) -> Self {
        let options = common::options().patience_ns(0).at_limit(case.at_limit);
        let options = if case.by_bytes {
            options.limit_bytes(LIMIT_BYTES)
        } else {
            options.limit_objects(LIMIT_OBJECTS)
        };
        Self {
            case,
            domain: Domain::new(options),
            name: format!("{case:?}"),
            park: Park::default(),
            tid: AtomicI32::new(0),
            inside: AtomicBool::new(false),
            end: AtomicBool::new(false),
            shared: AtomicPtr::new(object()),
            refused: AtomicU64::new(0),
            hooked: Mutex::default(),
        }
    }

    /// Short sections, until the end. The reader is stopped in one of them.
    fn read(&self) {
        let reader = self.domain.register(&self.name).unwrap();
        // SAFETY: the stage outlives its threads.
        unsafe { self.park.here() };
        // SAFETY: gettid takes and touches nothing.
        self.tid.store(unsafe { libc::gettid() }, Ordering::SeqCst);
        match self.case.kind {
            Kind::Online => self.read_online(&reader),
            _ => {
                while !self.end.load(Ordering::SeqCst) {
                    self.read_once(&reader);
                    self.inside.store(false, Ordering::SeqCst);
                }
            }
        }
    }

    fn within(&self) {
        self.inside.store(true, Ordering::SeqCst);
        spin_for_a_moment();
    }

    fn read_once(&self, reader: &Reader) {
        match self.case.kind {
            // SAFETY: the section spins, and stores to a place of its own, which every run overwrites.
            Kind::Read => unsafe {
                reader.read(|| {
                    self.within();
                    // Still within the section: where sections are epochs, a reader that is stopped after its section
                    // holds up nobody.
                    self.inside.store(false, Ordering::SeqCst);
                });
            },
            Kind::Acquire => {
                let mut slot = reader.slot().unwrap();
                let find = || self.shared.load(Ordering::Acquire).cast_const();
                // SAFETY: the object is retired by that address once it is unlinked.
                let pinned = unsafe { slot.acquire(find) };
                self.within();
                assert!(pinned.is_some_and(|object| object.iter().all(|&b| b == 1)));
                self.inside.store(false, Ordering::SeqCst);
            }
            Kind::Lock => {
                let _guard = reader.lock();
                self.within();
                self.inside.store(false, Ordering::SeqCst);
            }
            Kind::Online => unreachable!("stays in one section"),
        }
    }

    fn read_online(&self, reader: &Reader) {
        let mut online = reader.online();
        while !self.end.load(Ordering::SeqCst) {
            self.within();
            self.inside.store(false, Ordering::SeqCst);
            online.quiescent();
        }
    }

    /// Stops the reader within a section. None if that is not possible.
    fn stop_reader(&self) -> Option<Stopped<'_>> {
        while self.tid.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let tid = self.tid.load(Ordering::SeqCst);
        loop {
            let stopped = match self.case.stall {
                Stall::Parked => {
                    self.park.stop(tid);
                    Stopped::Parked(&self.park)
                }
                Stall::Traced => Stopped::Traced(Tracer::stop(tid)?),
            };
            if self.inside.load(Ordering::SeqCst) {
                return Some(stopped);
            }
            drop(stopped);
            spin_for_a_moment();
        }
    }

    /// Retires at the given rate, for the given time. A slot may pin the first object.
    fn write(&self) {
        unsafe fn free(object: *mut [u8; BYTES]) {
            // SAFETY: from a box; poisoned first, for readers that come too late.
            unsafe {
                (*object).fill(0);
                drop(Box::from_raw(object));
            }
        }
        let start = Instant::now();
        for i in 0..STALL.as_secs() * PER_SECOND {
            let due = start + Duration::from_secs(1) * i as u32 / PER_SECOND as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let old = self.shared.swap(object(), Ordering::AcqRel);
            // SAFETY: unlinked, and from a box; when refused it is still ours, and leaked: readers may use it.
            if unsafe { self.domain.try_retire_with(old, BYTES, free) }.is_err() {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether a stopped reader of this kind holds up the domain's writers.
    fn holds_up(&self) -> bool {
        let restartable = capabilities().restartable.is_ok();
        matches!(self.case.kind, Kind::Lock | Kind::Online) || (self.case.kind == Kind::Read && !restartable)
    }

    /// The most objects and bytes that wait at one time.
    fn peak(&self) -> (usize, usize) {
        match (self.holds_up(), self.case.kind, self.case.by_bytes) {
            (false, Kind::Acquire, _) => (2, 2 * BYTES),
            (false, ..) => (1, BYTES),
            (true, _, true) => (LIMIT_BYTES / BYTES, LIMIT_BYTES),
            (true, _, false) => (LIMIT_OBJECTS, LIMIT_OBJECTS * BYTES),
        }
    }

    /// Looks while the reader is still stopped.
    fn check(&self) {
        let (stats, case) = (self.domain.stats(), &self.name);
        let (objects, bytes) = self.peak();
        assert_eq!((stats.peak_objects, stats.peak_bytes), (objects, bytes), "{case}");
        let until = self.domain.synchronize_until(Instant::now() + Duration::from_millis(5));
        let hooked = self.hooked.lock().unwrap();
        if !self.holds_up() {
            assert!(
                until.is_ok() && stats.late.is_empty() && hooked.is_empty(),
                "{case}: {until:?} {hooked:?}"
            );
            assert_eq!(self.refused.load(Ordering::Relaxed), 0, "{case}");
            assert!(
                stats.fallbacks == 0 || capabilities().restartable.is_err(),
                "{case}: {}",
                stats.fallbacks
            );
            return;
        }
        let tid = self.tid.load(Ordering::SeqCst);
        let until = until.expect_err(case).readers;
        for named in [&until, &stats.late, &*hooked] {
            assert_eq!(named.len(), 1, "{case}: {named:?}");
            assert_eq!((&named[0].name, named[0].tid, named[0].in_section), (case, tid, true));
        }
        assert!(until[0].late_ns >= 1_000_000_000, "{case}: {until:?}");
        if self.case.at_limit == AtLimit::NoWait {
            let accepted = STALL.as_secs() * PER_SECOND - self.refused.load(Ordering::Relaxed);
            assert_eq!(accepted, objects as u64, "{case}");
        }
    }
}

enum Stopped<'a> {
    Parked(&'a Park),
    /// The reader goes on when the tracer is dropped.
    Traced(#[allow(dead_code)] Tracer),
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if let Stopped::Parked(park) = self {
            park.go();
        }
    }
}

/// Runs one case. All cases stop their readers before any writer begins, because membarrier restarts the running
/// sections of all domains.
fn play(stage: &'static Stage, all_stopped: &Barrier, all_written: &Barrier) {
    let log = |r: &LateReader| stage.hooked.lock().unwrap().push(r.clone());
    assert!(stage.domain.on_late(1_000_000, log));
    std::thread::scope(|s| {
        s.spawn(|| stage.read());
        let stopped = stage.stop_reader();
        all_stopped.wait();
        let wanted = stopped.is_some();
        let writer = wanted.then(|| s.spawn(|| stage.write()));
        let until = Instant::now() + STALL;
        // If the domain waits at its limit, the writer goes on only after the reader does. An emulated machine takes
        // longer to get there.
        while writer.as_ref().is_some_and(|w| !w.is_finished()) {
            let is_full = stage.domain.stats().peak_objects >= stage.peak().0;
            if stage.case.at_limit == AtLimit::Reclaim && Instant::now() >= until && is_full {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            if wanted {
                stage.check()
            }
        }));
        stage.end.store(true, Ordering::SeqCst);
        drop(stopped);
        all_written.wait();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    stage.domain.barrier();
    assert_eq!(stage.domain.stats().garbage_objects, 0, "{}", stage.name);
}

#[test]
#[cfg_attr(reprieve_fallback, ignore = "names late readers by the kernel's thread id")]
fn garbage_stays_within_its_bound_and_the_late_reader_is_named() {
    let (parked, traced) = (Stall::Parked, Stall::Traced);
    let (error, wait) = (AtLimit::NoWait, AtLimit::Wait { timeout_ns: 100_000 });
    let cases = [
        (Kind::Read, parked, AtLimit::Reclaim, false),
        (Kind::Read, traced, AtLimit::Reclaim, false),
        (Kind::Acquire, parked, AtLimit::Reclaim, false),
        (Kind::Acquire, traced, AtLimit::Reclaim, false),
        (Kind::Lock, parked, error, false),
        (Kind::Lock, traced, error, true),
        (Kind::Lock, traced, wait, false),
        (Kind::Lock, parked, AtLimit::Reclaim, true),
        (Kind::Online, parked, AtLimit::Reclaim, false),
        (Kind::Online, traced, error, true),
    ];
    let (all_stopped, all_written) = (Barrier::new(cases.len()), Barrier::new(cases.len()));
    std::thread::scope(|s| {
        for (kind, stall, at_limit, by_bytes) in cases {
            let stage: &'static Stage =
                Box::leak(Box::new(Stage::new(Case { kind, stall, at_limit, by_bytes })));
            let (all_stopped, all_written) = (&all_stopped, &all_written);
            s.spawn(move || play(stage, all_stopped, all_written));
        }
    });
}
