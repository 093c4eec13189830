//! Readers and a writer that try to make a use after free happen, and notice it.
//!
//! Nothing is ever freed: an object that would be is poisoned, and recycled much later. A reader that finds
//! poison in an object that it holds has caught an error, and nothing crashes. Hot keys and long dwells make
//! it likely that a reader holds what the writer retires; signals, migrations and thread churn disturb both.
//! A harness that never fails proves nothing: with parts of the protocol left out (`Control`), errors must be
//! found.

use reprieve_rcu::{Domain, Fencing, Options, Reader, Stats};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: usize = 16;
const OBJECTS: usize = 4_096;
/// Looks at one object per section: long enough that sections are often interrupted.
const DWELL: usize = 2_000;
const ALIVE: u64 = 0x600d;
const POISON: u64 = 0xdead;
/// Sections of one reader thread before it ends and another takes its place.
const LIFE: u64 = 20_000;

/// How the readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Restartable sections.
    Read,
    /// Hazard slots.
    Acquire,
    /// Epoch sections.
    Lock,
    /// One long section with quiescent states.
    Online,
}

/// What the writer does between unlinking and poisoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// What the crate says: nothing is left out.
    None,
    /// membarrier without its RSEQ variant.
    NoRseq,
    /// Nothing at all.
    NoBarrier,
    /// A token is started, and not waited for.
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
    pub signals: u64,
    pub stats: Stats,
}

struct Object {
    state: AtomicU64,
    key: AtomicU64,
}

struct World {
    plan: Plan,
    domain: Domain,
    hot: Vec<AtomicPtr<Object>>,
    stop: AtomicBool,
    sections: AtomicU64,
    errors: AtomicU64,
    /// Threads to disturb: locked while one of them ends.
    threads: Mutex<Vec<libc::pthread_t>>,
}

static IN_HANDLER: AtomicU64 = AtomicU64::new(0);

/// Reads in a handler, whatever it has interrupted.
extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: the section loads.
    IN_HANDLER.fetch_add(unsafe { Domain::global().read(|| 1) }, Ordering::Relaxed);
}

/// Whether the object at `at` stays what it is while it is held.
fn dwell(at: *const Object, key: usize) -> bool {
    // SAFETY: objects are never freed.
    let object = unsafe { &*at };
    (0..DWELL).all(|_| {
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
        // SAFETY: pthread_self takes and touches nothing.
        self.threads.lock().unwrap().push(unsafe { libc::pthread_self() });
        let (done, wrong) = self.read_sections(&reader, seed);
        self.sections.fetch_add(done, Ordering::Relaxed);
        self.errors.fetch_add(wrong, Ordering::Relaxed);
        // SAFETY: as above.
        self.threads.lock().unwrap().retain(|&t| t != unsafe { libc::pthread_self() });
    }

    fn read_sections(&self, reader: &Reader, seed: u64) -> (u64, u64) {
        let mut slot = reader.slot().expect("a slot");
        let mut online = (self.plan.kind == Kind::Online).then(|| reader.online());
        let (mut random, mut done, mut wrong) = (seed, 0, 0);
        while done < LIFE && !self.stop.load(Ordering::Relaxed) {
            let key = next(&mut random) as usize % KEYS;
            let fine = match self.plan.kind {
                // SAFETY: the section loads.
                Kind::Read => unsafe { reader.read(|| dwell(self.load(key), key)) },
                Kind::Acquire => {
                    // SAFETY: one load of an object that is retired by its address.
                    let pinned = unsafe { slot.acquire(|| self.load(key)) }.expect("an object");
                    dwell(&raw const *pinned, key)
                }
                Kind::Lock => {
                    let _guard = reader.lock();
                    let _nested = reader.lock();
                    dwell(self.load(key), key)
                }
                Kind::Online => dwell(self.load(key), key),
            };
            if let Some(online) = &mut online {
                online.quiescent();
            }
            wrong += u64::from(!fine);
            done += 1;
        }
        (done, wrong)
    }

    /// Replaces hot objects by fresh ones, as fast as it can. Returns how many.
    fn write(&self, objects: &'static [Object]) -> u64 {
        let (mut random, mut at, mut retired) = (7, KEYS, 0);
        while !self.stop.load(Ordering::Relaxed) {
            let fresh = &objects[at % OBJECTS];
            at += 1;
            // Recycled only when its poisoning is over.
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
            unsafe { (*object).state.store(POISON, Ordering::Release) };
        }
        match self.plan.control {
            // SAFETY: unlinked by the caller; poisoning may happen on any thread.
            Control::None => unsafe { self.domain.retire_with(old, 64, poison) }.expect("room"),
            Control::NoRseq => {
                const PRIVATE_EXPEDITED: i32 = 1 << 3;
                // SAFETY: membarrier touches no memory of the caller.
                unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
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

    /// Signals and moves readers at random. Returns how many signals it sent.
    fn disturb(&self) -> u64 {
        let (mut random, mut sent) = (3, 0);
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(200));
            let threads = self.threads.lock().unwrap();
            let Some(&thread) = threads.get(next(&mut random) as usize % threads.len().max(1)) else {
                continue;
            };
            // SAFETY: the thread is alive: it takes itself off the list, under the lock, before it ends.
            unsafe {
                libc::pthread_kill(thread, libc::SIGUSR1);
                if next(&mut random).is_multiple_of(8) {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    let mask = 1 + next(&mut random) % 3;
                    (0..2).filter(|cpu| mask & (1 << cpu) != 0).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
                    libc::pthread_setaffinity_np(thread, size_of_val(&set), &raw const set);
                }
            }
            sent += 1;
        }
        sent
    }
}

fn next(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

/// Runs `plan`.
pub fn run(plan: Plan) -> Outcome {
    let object = |_| Object { state: AtomicU64::new(POISON), key: AtomicU64::new(0) };
    // Leaked: readers of negative controls may hold objects for any time.
    let objects: &'static [Object] = Box::leak((0..OBJECTS).map(object).collect());
    let link = |key: usize| {
        objects[key].key.store(key as u64, Ordering::Relaxed);
        objects[key].state.store(ALIVE, Ordering::Relaxed);
        AtomicPtr::new(std::ptr::from_ref(&objects[key]).cast_mut())
    };
    let world = World {
        plan,
        domain: Domain::new(Options::new().fencing(plan.fencing)),
        hot: (0..KEYS).map(link).collect(),
        stop: AtomicBool::new(false),
        sections: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        threads: Mutex::new(Vec::new()),
    };
    let _ = Domain::global();
    // SAFETY: the handler is async-signal-safe.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t) };
    let (retired, signals) = std::thread::scope(|s| {
        let world = &world;
        for seed in 1..=plan.readers as u64 {
            // Each thread is followed by another: threads come and go.
            s.spawn(move || {
                let mut seed = seed;
                while !world.stop.load(Ordering::Relaxed) {
                    std::thread::scope(|s| drop(s.spawn(|| world.read(seed))));
                    next(&mut seed);
                }
            });
        }
        let writer = s.spawn(|| world.write(objects));
        let disturber = s.spawn(|| world.disturb());
        let end = Instant::now() + plan.duration;
        // A negative control has served its purpose when it is caught.
        while Instant::now() < end
            && (plan.control == Control::None || world.errors.load(Ordering::Relaxed) == 0)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        world.stop.store(true, Ordering::Relaxed);
        (writer.join().unwrap(), disturber.join().unwrap())
    });
    world.domain.barrier();
    Outcome {
        sections: world.sections.load(Ordering::Relaxed),
        errors: world.errors.load(Ordering::Relaxed),
        retired,
        signals,
        stats: world.domain.stats(),
    }
}
