//! Readers and a writer that try to provoke a use after free, and that notice one.
//!
//! Nothing is really freed. An object that would be freed is poisoned, and recycled much later. A reader that finds
//! poison in an object that it holds has caught an error, without a crash. Hot keys and long sections make it likely
//! that a reader holds what the writer retires. Signals whose handlers read, stopped and parked readers, migrations,
//! short-lived threads and forks disturb both sides.
//!
//! A test that never fails proves nothing. So there are negative controls with parts of the protocol left out
//! (`Control`), in which errors must be found.

#[path = "ages.rs"]
mod ages;
#[path = "disturb.rs"]
mod disturb;
#[path = "stopper.rs"]
mod stopper;

use ages::Ages;
pub use disturb::Disturbances;
use reprieve_rcu::{Domain, Fencing, Options, Reader, Stats};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stopper::Stopper;

const KEYS: usize = 16;
const OBJECTS: usize = 4_096;
/// Looks at one object per section, which takes microseconds, so that sections are often interrupted. Some sections
/// are longer, because a writer that does too little is only caught by a reader that runs beside it for long.
const DWELL: usize = 2_000;
const LONG_DWELL: usize = 30_000;
const ALIVE: u64 = 0x600d;
const POISON: u64 = 0xdead;
/// How many sections one reader thread runs before it ends and another takes its place.
const LIFE: u64 = 20_000;

/// How the readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Restartable sections.
    Read,
    /// Hazard slots.
    Acquire,
    /// Epoch sections, nested or entered alone.
    Lock,
    /// One long section with quiescent states.
    Online,
}

/// What the writer does between unlinking and poisoning an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// All that the crate demands.
    None,
    /// Calls membarrier without its RSEQ variant.
    NoRseq,
    /// Does nothing at all.
    NoBarrier,
    /// Takes a token, but does not wait for it.
    NoWait,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub control: Control,
    pub fencing: Fencing,
    pub readers: usize,
    pub duration: Duration,
}

/// What it found.
#[derive(Debug)]
pub struct Outcome {
    pub sections: u64,
    pub errors: u64,
    pub retired: u64,
    /// How many reader threads lived and ended.
    pub lives: u64,
    /// How many sections ran within signal handlers.
    pub in_handlers: u64,
    pub disturbances: Disturbances,
    /// How old objects were when they were freed, see `Ages::histogram`.
    pub ages: Vec<(u64, u64)>,
    pub stats: Stats,
}

struct Object {
    state: AtomicU64,
    key: AtomicU64,
    retired_ns: AtomicU64,
    ages: &'static Ages,
}

struct World {
    plan: Plan,
    domain: Domain,
    hot: Vec<AtomicPtr<Object>>,
    stop: AtomicBool,
    sections: AtomicU64,
    errors: AtomicU64,
    lives: AtomicU64,
    stopper: Stopper,
    /// The threads to disturb, by their `pthread_t`, which is a pointer with some C libraries. Locked while one of
    /// them ends.
    threads: Mutex<Vec<usize>>,
}

/// Calls membarrier without its RSEQ variant. The call must succeed: if it were refused, there would be no barrier at
/// all, and the control would show less than it claims.
fn plain_membarrier() {
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    // SAFETY: membarrier touches no memory of the caller.
    let call = |command: i32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    // The registration for the RSEQ variant does not count for this variant.
    static REGISTERED: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    assert_eq!(*REGISTERED.get_or_init(|| call(REGISTER_PRIVATE_EXPEDITED)), 0);
    assert_eq!(call(PRIVATE_EXPEDITED), 0);
}

/// Whether the object at `at` stays the same while it is held.
fn dwell(at: *const Object, key: usize, looks: usize) -> bool {
    // SAFETY: objects are never freed.
    let object = unsafe { &*at };
    (0..looks).all(|_| {
        object.state.load(Ordering::Relaxed) == ALIVE && object.key.load(Ordering::Relaxed) == key as u64
    })
}

impl World {
    fn load(&self, key: usize) -> *const Object {
        self.hot[key].load(Ordering::Acquire)
    }

    /// One thread's life.
    fn read(&self, seed: u64) {
        let reader = self.domain.register("torture").expect("a reader");
        // Handlers may lock a domain only if the thread has locked it before.
        drop(self.domain.lock());
        disturb::handlers_read(self);
        let place = self.stopper.offer();
        // SAFETY: pthread_self takes and touches nothing.
        let me = unsafe { libc::pthread_self() } as usize;
        self.threads.lock().unwrap().push(me);
        let (done, wrong) = self.read_sections(&reader, seed);
        self.threads.lock().unwrap().retain(|&t| t != me);
        self.stopper.retract(place);
        disturb::handlers_read(std::ptr::null());
        self.sections.fetch_add(done, Ordering::Relaxed);
        self.errors.fetch_add(wrong, Ordering::Relaxed);
        self.lives.fetch_add(1, Ordering::Relaxed);
    }

    fn read_sections(&self, reader: &Reader, seed: u64) -> (u64, u64) {
        let mut slot = reader.slot().expect("a slot");
        let mut alone = self.domain.register("alone").expect("a reader");
        let mut online = (self.plan.kind == Kind::Online).then(|| reader.online());
        let (mut random, mut done, mut wrong) = (seed, 0, 0);
        while done < LIFE && !self.stop.load(Ordering::Relaxed) {
            let key = next(&mut random) as usize % KEYS;
            let looks = if next(&mut random).is_multiple_of(8) { LONG_DWELL } else { DWELL };
            let fine = match self.plan.kind {
                // SAFETY: the section loads.
                Kind::Read => unsafe { reader.read(|| dwell(self.load(key), key, looks)) },
                Kind::Acquire => {
                    // SAFETY: one load of an object that is retired by its address.
                    let pinned = unsafe { slot.acquire(|| self.load(key)) }.expect("an object");
                    dwell(&raw const *pinned, key, looks)
                }
                Kind::Lock if seed.is_multiple_of(3) => {
                    let _entered = alone.enter();
                    dwell(self.load(key), key, looks)
                }
                Kind::Lock => {
                    // The thread's own record, which its handlers use, too, and a registered one.
                    let _own = seed.is_multiple_of(2).then(|| self.domain.lock());
                    let _guard = reader.lock();
                    // Ends before the outer section, which goes on.
                    drop(reader.lock());
                    dwell(self.load(key), key, looks)
                }
                Kind::Online => dwell(self.load(key), key, looks),
            };
            if let Some(online) = &mut online {
                online.quiescent();
            }
            wrong += u64::from(!fine);
            done += 1;
        }
        (done, wrong)
    }

    /// Replaces hot objects by fresh ones as fast as it can. Returns how many.
    fn write(&self, objects: &'static [Object]) -> u64 {
        let (mut random, mut at, mut retired) = (7, KEYS, 0);
        while !self.stop.load(Ordering::Relaxed) {
            let fresh = &objects[at % OBJECTS];
            at += 1;
            // Recycled only once its poisoning is over.
            if fresh.state.load(Ordering::Acquire) != POISON {
                self.domain.reclaim_now();
                continue;
            }
            let key = next(&mut random) as usize % KEYS;
            fresh.key.store(key as u64, Ordering::Relaxed);
            fresh.state.store(ALIVE, Ordering::Relaxed);
            let old = self.hot[key].swap(std::ptr::from_ref(fresh).cast_mut(), Ordering::AcqRel);
            self.poison_later(old);
            retired += 1;
        }
        retired
    }

    fn poison_later(&self, old: *mut Object) {
        unsafe fn poison(object: *mut Object) {
            // SAFETY: objects are never freed.
            let object = unsafe { &*object };
            object.ages.freed(object.retired_ns.load(Ordering::Relaxed));
            object.state.store(POISON, Ordering::Release);
        }
        // SAFETY: objects are never freed.
        let object = unsafe { &*old };
        object.retired_ns.store(object.ages.now_ns(), Ordering::Relaxed);
        match self.plan.control {
            // SAFETY: unlinked by the caller; poisoning may happen on any thread.
            Control::None => unsafe { self.domain.retire_with(old, 64, poison) },
            Control::NoRseq => {
                plain_membarrier();
                // SAFETY: objects are never freed.
                unsafe { poison(old) };
            }
            // SAFETY: objects are never freed.
            Control::NoBarrier => unsafe { poison(old) },
            Control::NoWait => {
                self.domain.start();
                // SAFETY: objects are never freed.
                unsafe { poison(old) };
            }
        }
    }
}

fn next(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

impl World {
    fn new(plan: Plan, objects: &'static [Object]) -> Self {
        let link = |key: usize| {
            objects[key].key.store(key as u64, Ordering::Relaxed);
            objects[key].state.store(ALIVE, Ordering::Relaxed);
            AtomicPtr::new(std::ptr::from_ref(&objects[key]).cast_mut())
        };
        Self {
            plan,
            domain: Domain::new(Options::new().fencing(plan.fencing)),
            hot: (0..KEYS).map(link).collect(),
            stop: AtomicBool::new(false),
            sections: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            lives: AtomicU64::new(0),
            stopper: Stopper::start(),
            threads: Mutex::new(Vec::new()),
        }
    }

    /// Readers, one thread after the other.
    fn keep_reading(&self, mut seed: u64) {
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::scope(|s| drop(s.spawn(|| self.read(seed))));
            next(&mut seed);
        }
    }

    /// Until the time is over or an error is found. A negative control has then served its purpose.
    fn sleep_to_the_end(&self) {
        let end = Instant::now() + self.plan.duration;
        while Instant::now() < end && self.errors.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs `plan`.
pub fn run(plan: Plan) -> Outcome {
    // Both are leaked, because readers of negative controls may hold objects for any time.
    let ages: &'static Ages = Box::leak(Box::new(Ages::new()));
    let object = |_| Object {
        state: AtomicU64::new(POISON),
        key: AtomicU64::new(0),
        retired_ns: AtomicU64::new(0),
        ages,
    };
    let objects: &'static [Object] = Box::leak((0..OBJECTS).map(object).collect());
    disturb::install();
    let in_handlers = disturb::IN_HANDLERS.load(Ordering::Relaxed);
    let world = World::new(plan, objects);
    let (retired, mut disturbances) = std::thread::scope(|s| {
        let world = &world;
        (1..=plan.readers as u64).for_each(|seed| drop(s.spawn(move || world.keep_reading(seed))));
        let writer = s.spawn(|| world.write(objects));
        let disturber = s.spawn(|| world.disturb());
        world.sleep_to_the_end();
        (writer.join().unwrap(), disturber.join().unwrap())
    });
    world.domain.barrier();
    (disturbances.threads_stopped, disturbances.process_stopped) = world.stopper.end();
    Outcome {
        sections: world.sections.load(Ordering::Relaxed),
        errors: world.errors.load(Ordering::Relaxed),
        retired,
        lives: world.lives.load(Ordering::Relaxed),
        in_handlers: disturb::IN_HANDLERS.load(Ordering::Relaxed) - in_handlers,
        disturbances,
        ages: ages.histogram(),
        stats: world.domain.stats(),
    }
}
