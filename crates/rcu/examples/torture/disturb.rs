//! Disturbs the readers from within their process: by signals whose handlers read, signals whose handlers park the
//! thread where it is, migrations, and forks.

use super::stopper::sleep_ms;
use super::{DWELL, World, dwell, next};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    /// What the thread's handlers read. Null before its records exist and after they are given back.
    static WORLD: Cell<*const World> = const { Cell::new(ptr::null()) };
}

/// Whether handlers read and the process forks. The portable half of the crate allows neither.
const SIGNALS_AND_FORKS: bool = cfg!(not(reprieve_fallback));

/// How many sections handlers have run, in the whole process.
pub static IN_HANDLERS: AtomicU64 = AtomicU64::new(0);

/// How many disturbances of each kind there were.
#[derive(Debug, Default)]
pub struct Disturbances {
    pub signals: u64,
    pub parked: u64,
    pub migrations: u64,
    pub forks: u64,
    pub forks_failed: u64,
    pub threads_stopped: u64,
    pub process_stopped: u64,
}

/// Installs the handlers.
pub fn install() {
    // SAFETY: the handlers are async-signal-safe: they read in domains that the thread has locked before.
    unsafe {
        libc::signal(libc::SIGUSR1, read_in_handler as *const () as libc::sighandler_t);
        libc::signal(libc::SIGUSR2, park_in_handler as *const () as libc::sighandler_t);
    }
}

/// Lets the calling thread's handlers read from here on. With null they no longer read.
pub fn handlers_read(world: *const World) {
    if SIGNALS_AND_FORKS {
        WORLD.set(world);
    }
}

/// Reads in both ways that handlers may use, the second of them nested.
extern "C" fn read_in_handler(_: libc::c_int) {
    // SAFETY: set by a thread that lives, to a world that outlives it.
    let Some(world) = (unsafe { WORLD.get().as_ref() }) else { return };
    // SAFETY: the section loads.
    let restartable = unsafe { world.domain.read(|| dwell(world.load(0), 0, DWELL)) };
    let _outer = world.domain.lock();
    let _inner = world.domain.lock();
    let locked = dwell(world.load(1), 1, DWELL);
    world.errors.fetch_add(u64::from(!restartable) + u64::from(!locked), Ordering::Relaxed);
    IN_HANDLERS.fetch_add(1, Ordering::Relaxed);
}

/// Keeps the thread where it is, in a section or outside.
extern "C" fn park_in_handler(_: libc::c_int) {
    sleep_ms(5);
}

impl World {
    /// Signals, parks and moves readers at random until the end.
    pub fn disturb(&self) -> Disturbances {
        let (mut random, mut did) = (3, Disturbances::default());
        let mut next_fork = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(200));
            self.disturb_one(&mut random, &mut did);
            if SIGNALS_AND_FORKS && Instant::now() >= next_fork {
                next_fork = Instant::now() + Duration::from_millis(100);
                did.forks += 1;
                did.forks_failed += u64::from(!self.fork());
            }
        }
        did
    }

    fn disturb_one(&self, random: &mut u64, did: &mut Disturbances) {
        let threads = self.threads.lock().unwrap();
        let Some(&thread) = threads.get(next(random) as usize % threads.len().max(1)) else { return };
        let park = next(random).is_multiple_of(256);
        // SAFETY: the thread is alive: it takes itself off the list, under the lock, before it ends.
        unsafe { libc::pthread_kill(thread as _, if park { libc::SIGUSR2 } else { libc::SIGUSR1 }) };
        if next(random).is_multiple_of(8) {
            let mask = 1 + next(random) % 3;
            // SAFETY: as above; the set is valid for the call.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                (0..2).filter(|cpu| mask & (1 << cpu) != 0).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
                libc::pthread_setaffinity_np(thread as _, size_of_val(&set), &raw const set);
            }
            did.migrations += 1;
        }
        did.parked += u64::from(park);
        did.signals += u64::from(!park);
    }

    /// Forks, and lets the child read, retire and wait. Returns whether the child could.
    fn fork(&self) -> bool {
        let mut status = 0;
        // SAFETY: the child leaves by _exit, or is ended by its alarm.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                libc::_exit(i32::from(!self.works_in_child()));
            }
            child > 0 && libc::waitpid(child, &raw mut status, 0) == child && status == 0
        }
    }

    fn works_in_child(&self) -> bool {
        // SAFETY: what the parent's other threads had found, they did not pass on.
        unsafe { self.domain.end_sections_of_the_parent() };
        // SAFETY: the section loads.
        let read = unsafe { self.domain.read(|| dwell(self.load(0), 0, DWELL)) };
        let waited = || self.domain.synchronize_until(Instant::now() + Duration::from_secs(10)).is_ok();
        let before = waited();
        let locked = {
            let _guard = self.domain.lock();
            dwell(self.load(1), 1, DWELL)
        };
        self.domain.defer(|| ());
        read && before && locked && waited()
    }
}
