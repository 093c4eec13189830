//! What is built on the protocol, under shuttle: thousands of random schedules of the code that runs, with sequential
//! consistency. loom and `model_tests.rs` check what weaker orders allow.
//!
//! Objects are poisoned when they are freed, and their memory is not reused within a run, so that a use after the
//! free reads poison. `RUSTFLAGS="--cfg shuttle" cargo test --release --lib shuttle`

use crate::epoch::{self, Acknowledged, Clock};
use crate::fence;
use crate::mode::{ASYMMETRIC, FENCED};
use crate::platform::membarrier;
use crate::pool::Pool;
use crate::section;
use crate::sync::AtomicU32;
use crate::{AtLimit, Domain, Fencing, Help, Options, Reader};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use shuttle::{Config, Runner, thread};
use std::ptr;
use std::sync::Arc;

/// A seed, so that the schedules are the same each time.
const SEED: u64 = 1;
const PREEMPTIONS: usize = 3;

/// Runs `f` under a few thousand schedules.
fn explore(f: impl Fn() + Send + Sync + 'static) {
    explore_thoroughly(4_000, f);
}

/// Runs `f` under `schedules` schedules with few preemptions, and under a quarter as many with any number.
fn explore_thoroughly(schedules: usize, f: impl Fn() + Send + Sync + 'static) {
    // One test at a time: tests share the statics of this crate, and only one system thread may use shuttle's atomics.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let f = Arc::new(f);
    let (few_preemptions, again) = (PctScheduler::new_from_seed(SEED, PREEMPTIONS, schedules), f.clone());
    Runner::new(few_preemptions, Config::new()).run(move || f());
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules / 4), Config::new()).run(move || again());
}

/// Domains whose decisions do not depend on the clock.
fn options(fencing: Fencing) -> Options {
    Options::new().fencing(fencing).patience_ns(0).deadline_ns(u64::MAX).help(Help::None)
}

const ALIVE: u64 = 0xa11f_e000;
const FREED: u64 = 0xdead_dead;

/// An object, and whether it is alive. It is leaked, so that its memory is never reused.
fn object() -> *mut AtomicU64 {
    Box::into_raw(Box::new(AtomicU64::new(ALIVE)))
}

fn poison(object: *mut AtomicU64) {
    // SAFETY: objects are leaked.
    assert_eq!(unsafe { (*object).swap(FREED, Ordering::SeqCst) }, ALIVE, "freed twice");
}

fn assert_alive(object: *const AtomicU64) {
    // SAFETY: as above.
    assert_eq!(unsafe { (*object).load(Ordering::SeqCst) }, ALIVE, "used after it was freed");
}

/// A shared place for objects, and a domain that frees them.
struct World {
    domain: Domain,
    place: AtomicPtr<AtomicU64>,
}

impl World {
    fn new(options: Options) -> Arc<Self> {
        Arc::new(Self { domain: Domain::new(options), place: AtomicPtr::new(object()) })
    }

    /// Replaces the object; the old one is freed after a grace period.
    fn replace(&self) {
        let old = self.place.swap(object(), Ordering::SeqCst);
        // SAFETY: unlinked by the swap, and read within sections only.
        unsafe { self.domain.retire_with(old, 8, |o| poison(o)) };
    }

    /// As `replace`, with a grace period by hand.
    fn replace_by_token(&self) {
        let old = self.place.swap(object(), Ordering::SeqCst);
        let token = self.domain.start();
        while !self.domain.check(token) {
            thread::yield_now();
        }
        poison(old);
    }

    fn found(&self) -> *const AtomicU64 {
        self.place.load(Ordering::SeqCst)
    }

    fn read_locked(&self, reader: &Reader) {
        let _guard = reader.lock();
        assert_alive(self.found());
    }

    fn read_restartable(&self, reader: &Reader) {
        // SAFETY: two loads and a comparison.
        unsafe { reader.read(|| assert_alive(self.found())) };
    }

    fn pin(&self, reader: &Reader) {
        let mut slot = reader.slot().unwrap();
        // SAFETY: one load; objects are retired by that address.
        let held = unsafe { slot.acquire(|| self.found()) }.unwrap();
        // Outside of any section, so that only the slot protects it.
        thread::yield_now();
        assert_alive(&raw const *held);
    }

    /// A thread that registers, runs `read` twice, and ends.
    fn spawn(self: &Arc<Self>, read: fn(&Self, &Reader)) -> thread::JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || {
            let reader = world.domain.register("reader").unwrap();
            read(&world, &reader);
            read(&world, &reader);
        })
    }
}

/// Two writers and a reader of each kind. In the end everything but the last object is freed.
fn readers_beside_writers(fencing: Fencing, options: fn(Options) -> Options, read: fn(&World, &Reader)) {
    explore(move || {
        let world = World::new(options(self::options(fencing)));
        let readers = [world.spawn(read), world.spawn(read)];
        let other = world.clone();
        let writer = thread::spawn(move || other.replace());
        world.replace();
        world.replace();
        writer.join().unwrap();
        readers.into_iter().for_each(|r| r.join().unwrap());
        world.domain.barrier();
        assert_eq!((world.domain.stats().garbage_objects, world.domain.stats().freed_objects), (0, 3));
        assert_alive(world.found());
    });
}

#[test]
fn shuttle_locked_readers() {
    readers_beside_writers(Fencing::Asymmetric, |o| o, World::read_locked);
    readers_beside_writers(Fencing::Fenced, |o| o.batch(2), World::read_locked);
}

/// The protocol alone, in few steps: a reader registers while a writer's scan stands for all writers. Either the scan
/// finds the reader, or the reader sees the unlinks that the scan covers.
#[test]
fn shuttle_readers_that_register_late() {
    explore_thoroughly(40_000, || {
        let (clock, acks) = (Arc::new(Clock::new(FENCED)), Arc::new(Acknowledged::default()));
        let words = Arc::new(Pool::<AtomicU64>::new());
        let place = Arc::new(AtomicPtr::new(object()));
        let start = |clock: &Clock, acks: &Acknowledged| {
            let token = clock.tick();
            acks.fence_done(token);
            token
        };
        let reader = thread::spawn({
            let (clock, words, place) = (clock.clone(), words.clone(), place.clone());
            move || {
                let entry = words.take(1).unwrap();
                // SAFETY: the pool is alive.
                let word = unsafe { entry.get() };
                epoch::enter(word, &clock);
                assert_alive(place.load(Ordering::SeqCst));
                epoch::leave(word);
            }
        });
        // Retires, and leaves it to the other writer to look.
        let writer = thread::spawn({
            let (clock, acks) = (clock.clone(), acks.clone());
            move || {
                let old = place.swap(object(), Ordering::SeqCst);
                (old.expose_provenance(), start(&clock, &acks))
            }
        });
        start(&clock, &acks);
        acks.scan(|| words.iter());
        let (old, token) = writer.join().unwrap();
        if acks.has_passed(token) {
            poison(ptr::with_exposed_provenance_mut(old));
        }
        reader.join().unwrap();
    });
}

#[test]
fn shuttle_restartable_readers() {
    readers_beside_writers(Fencing::Asymmetric, |o| o, World::read_restartable);
    readers_beside_writers(Fencing::Fenced, |o| o, World::read_restartable);
}

#[test]
fn shuttle_pinned_objects() {
    readers_beside_writers(Fencing::Asymmetric, |o| o, World::pin);
    readers_beside_writers(Fencing::Fenced, |o| o.batch(2), World::pin);
}

/// Limits hold in any order, and a writer that waits at a limit is not left waiting.
#[test]
fn shuttle_limits() {
    for fencing in [Fencing::Asymmetric, Fencing::Fenced] {
        explore(move || {
            let world = World::new(options(fencing).limit_objects(1).at_limit(AtLimit::Reclaim));
            let reader = world.spawn(World::read_locked);
            let other = world.clone();
            let writer = thread::spawn(move || other.replace());
            world.replace();
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!(world.domain.stats().peak_objects, 1);
        });
    }
}

/// Tokens by hand: nobody reads what was unlinked before a token that has passed.
#[test]
fn shuttle_tokens() {
    for fencing in [Fencing::Asymmetric, Fencing::Fenced] {
        explore(move || {
            let world = World::new(options(fencing));
            let readers = [world.spawn(World::read_locked), world.spawn(World::read_locked)];
            let other = world.clone();
            // Another writer's scan may cover the token below.
            let writer = thread::spawn(move || {
                let token = other.domain.start();
                other.domain.check(token)
            });
            world.replace_by_token();
            writer.join().unwrap();
            readers.into_iter().for_each(|r| r.join().unwrap());
        });
    }
}

/// The exit of a reader wakes the writer that waits for it. Otherwise shuttle reports a deadlock.
#[test]
fn shuttle_synchronize_is_woken() {
    explore(|| {
        let world = World::new(options(Fencing::Asymmetric));
        let reader = world.spawn(World::read_locked);
        let old = world.place.swap(object(), Ordering::SeqCst);
        world.domain.synchronize();
        poison(old);
        reader.join().unwrap();
    });
}

/// Threads come and go beside a writer. Records are used again, and a section that was left open keeps its own record.
#[test]
fn shuttle_registration() {
    explore(|| {
        let world = World::new(options(Fencing::Asymmetric));
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let world = world.clone();
                thread::spawn(move || match n {
                    // By the thread's own record, which is left in a section.
                    0 => std::mem::forget(world.domain.lock()),
                    1 => drop(world.domain.lock()),
                    _ => world.read_locked(&world.domain.register("reader").unwrap()),
                })
            })
            .collect();
        world.replace();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let later = world.clone();
        thread::spawn(move || drop(later.domain.lock())).join().unwrap();
        let readers = world.domain.core().readers.len();
        assert!((1..=4).contains(&readers), "{readers} records: the one left behind, and three at a time");
        let token = world.domain.start();
        assert!(!world.domain.check(token), "the section left behind goes on");
    });
}

/// Concurrent callers share membarriers. Each is served by a call that began after its request.
#[test]
fn shuttle_callers_are_served_by_later_membarriers() {
    explore(|| {
        let caller = || {
            let begun = membarrier::begun();
            fence::barrier().unwrap();
            assert!(membarrier::ended() > begun, "served by a call that had begun before");
        };
        let others = [thread::spawn(caller), thread::spawn(caller)];
        caller();
        others.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// What callers of shared membarriers rely on: no section that found the object is left.
#[test]
fn shuttle_shared_membarriers() {
    explore_thoroughly(80_000, || {
        let place = Arc::new(AtomicPtr::new(object()));
        let other = thread::spawn(|| fence::barrier().unwrap());
        let reader = thread::spawn({
            let place = place.clone();
            move || {
                let read = || assert_alive(place.load(Ordering::SeqCst));
                // SAFETY: two loads and a comparison.
                unsafe {
                    section::restartable(&AtomicU32::new(ASYMMETRIC), &read, |why, _| panic!("{why:?}"))
                };
            }
        });
        let old = place.swap(object(), Ordering::SeqCst);
        fence::barrier().unwrap();
        poison(old);
        other.join().unwrap();
        reader.join().unwrap();
    });
}

/// Callbacks run once, also those that other callbacks retire. A caller of `barrier` waits for what it has retired,
/// whichever thread has it in hand.
#[test]
fn shuttle_callbacks_that_retire() {
    // With batches of one, threads also take each other's objects out of the bags.
    for batch in [1, 2] {
        explore_thoroughly(12_000, move || {
            let domain = Domain::new(options(Fencing::Asymmetric).batch(batch));
            let threads = [0; 2].map(|_| {
                let domain = domain.clone();
                thread::spawn(move || retire_twice(&domain))
            });
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(domain.stats().garbage_objects, 0);
        });
    }
}

/// A barrier frees what was retired before it, whichever thread has queued it, even while a section holds up what is
/// queued later.
#[test]
fn shuttle_barriers_and_batches_of_several_threads() {
    explore_thoroughly(12_000, || {
        let domain = Domain::new(options(Fencing::Asymmetric).batch(100));
        let closes = domain.clone();
        let closer = thread::spawn(move || {
            closes.defer(|| ());
            // Closes all bags.
            drop(closes);
        });
        let reads = domain.clone();
        let reader = thread::spawn(move || drop(reads.lock()));
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        domain.defer(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        domain.barrier();
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        closer.join().unwrap();
        reader.join().unwrap();
    });
}

fn retire_twice(domain: &Domain) {
    let runs = Arc::new(AtomicUsize::new(0));
    let (again, count) = (domain.clone(), runs.clone());
    let callback = move || {
        let add = move || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        again.defer(add);
    };
    domain.defer(callback);
    // The second barrier is for what the callback retired.
    domain.barrier();
    domain.barrier();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
