//! Where readers execute fences, a reader that is stopped at any point holds up what its slot pins, and nothing else.

#![cfg(target_os = "linux")]

#[allow(dead_code)]
#[path = "common/stop.rs"]
mod stop;

use reprieve_rcu::map::{FastHash, MapOptions, Plain};
use reprieve_rcu::{Domain, Fencing, Options, RcuCell, RcuMap};
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use stop::Park;

/// How often the reader is stopped.
const ROUNDS: u64 = 200;
/// How many objects the writer retires while the reader is stopped.
const RETIRED: u64 = 100;

/// Runs `read` again and again on a thread, and stops the thread at random points. `write` then retires some objects,
/// of which at most `pinned` may wait.
fn holds_up_at_most(pinned: usize, domain: &Domain, read: impl Fn() + Sync, write: impl Fn(u64)) {
    let (park, tid, stop) = (Park::default(), AtomicI32::new(0), AtomicBool::new(false));
    let reads = AtomicU64::new(0);
    let mut most = 0;
    std::thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: the place outlives the scope.
            unsafe { park.here() };
            // SAFETY: takes nothing.
            tid.store(unsafe { libc::gettid() }, Ordering::SeqCst);
            while !stop.load(Ordering::Relaxed) {
                read();
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        while reads.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        for round in 0..ROUNDS {
            let before = reads.load(Ordering::Relaxed);
            park.stop(tid.load(Ordering::SeqCst));
            (0..RETIRED).for_each(|n| write(round * RETIRED + n));
            most = most.max(domain.stats().garbage_objects);
            park.go();
            while reads.load(Ordering::Relaxed) < before + 10 {
                std::thread::yield_now();
            }
            // Otherwise the next stop may pin the same shard again, together with what this stop has left.
            while domain.stats().garbage_objects > 0 {
                domain.reclaim_now();
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(most <= pinned, "{most} objects waited");
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0);
}

fn fenced() -> Domain {
    Domain::new(Options::new().fencing(Fencing::Fenced))
}

#[test]
fn a_copy_of_a_cell() {
    let domain = fenced();
    let cell = RcuCell::in_domain(&domain, [0u64; 2]);
    let read = || assert!(matches!(cell.get(), [a, b] if a == b));
    holds_up_at_most(1, &domain, read, |n| cell.replace([n, n]));
}

#[test]
fn a_use_and_a_clone_of_a_cells_value() {
    let domain = fenced();
    let cell = RcuCell::in_domain(&domain, vec![0u64; 2]);
    let read =
        || assert!(cell.with(|v| v[0] == v[1]) && cell.get_cloned().len() == 2 && cell.hold().len() == 2);
    holds_up_at_most(1, &domain, read, |n| cell.replace(vec![n; 2]));
}

#[test]
fn a_slot_that_follows_a_pointer() {
    let domain = fenced();
    let value = |n: u64| Box::into_raw(Box::new([n, !n]));
    let place = AtomicPtr::new(value(0));
    let read = || {
        let reader = domain.register("reader").unwrap();
        let mut slot = reader.slot().unwrap();
        for _ in 0..100 {
            // SAFETY: the place never holds null, and what it holds is retired by that address.
            let [a, b] = unsafe { *slot.pin(&place) };
            assert_eq!(a, !b);
        }
    };
    let write = |n| {
        let old = place.swap(value(n), Ordering::AcqRel);
        // SAFETY: unlinked, from a box, and read by slots alone.
        unsafe { domain.retire(old) };
    };
    holds_up_at_most(1, &domain, read, write);
    // SAFETY: nobody reads any more.
    drop(unsafe { Box::from_raw(place.load(Ordering::Relaxed)) });
}

/// While a writer replaces what is pinned as fast as it can.
#[test]
fn a_slot_under_fire() {
    const REPLACED: u64 = 300_000;
    /// # Safety
    /// As `Domain::retire_with` has it.
    unsafe fn poison(value: *mut [AtomicU64; 2]) {
        // SAFETY: from a box, and given back to it once, below.
        let words = unsafe { &*value };
        words.iter().for_each(|v| v.store(0, Ordering::Relaxed));
        POISONED.lock().unwrap().push(value.expose_provenance());
    }
    /// Freed only at the end: in memory that is used again, a late reader would find a good value.
    static POISONED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let domain = fenced();
    let value = |n: u64| Box::into_raw(Box::new([AtomicU64::new(n), AtomicU64::new(!n)]));
    let (place, stop) = (AtomicPtr::new(value(1)), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            let reader = domain.register("reader").unwrap();
            let mut slot = reader.slot().unwrap();
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the place never holds null, and what it holds is retired by that address.
                let [a, b] = unsafe { &*slot.pin(&place) };
                for _ in 0..20 {
                    assert_eq!(
                        a.load(Ordering::Relaxed),
                        !b.load(Ordering::Relaxed),
                        "freed while it is pinned"
                    );
                }
            }
        });
        for n in 2..REPLACED {
            let old = place.swap(value(n), Ordering::AcqRel);
            // SAFETY: unlinked, from a box, and read by slots alone.
            unsafe { domain.retire_with(old, 16, poison) };
        }
        stop.store(true, Ordering::Relaxed);
    });
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0);
    // SAFETY: nobody reads any more.
    unsafe { poison(place.load(Ordering::Relaxed)) };
    for value in POISONED.lock().unwrap().drain(..) {
        // SAFETY: each is from a box, and was retired once.
        drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<[AtomicU64; 2]>(value)) });
    }
}

#[test]
fn a_look_up_in_a_map() {
    const KEYS: u64 = 4_096;
    const SHARDS: usize = 16;
    let domain = fenced();
    let options = MapOptions::new().shards(SHARDS).capacity(2 * KEYS as usize);
    let map = RcuMap::with_options(&domain, options, FastHash::default());
    (0..KEYS).for_each(|key| _ = map.set(key, key));
    let read =
        || (0..50).for_each(|n| assert_eq!(map.copied(&(n * 77)).map(|value| value % KEYS), Some(n * 77)));
    // A shard's part of what is retired, and the same again as a margin.
    let part = 4 * RETIRED as usize / SHARDS;
    holds_up_at_most(part, &domain, read, |n| _ = map.set(n % KEYS, n));
}

/// A key whose comparison stops once, in the middle of a look-up.
#[derive(Clone, Copy, Debug, Eq)]
struct Slow(u64);

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// 1: the next comparison stops. 2: it has stopped. 3: it goes on.
static GATE: AtomicU64 = AtomicU64::new(0);

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        if GATE.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            while GATE.load(Ordering::SeqCst) == 2 {
                std::thread::yield_now();
            }
        }
        self.0 == other.0
    }
}
// SAFETY: it waits for a test; where readers execute fences, nothing is run again.
unsafe impl Plain for Slow {}

#[test]
fn an_entry_that_is_read_is_neither_dropped_nor_overwritten() {
    let domain = fenced();
    let options = MapOptions::new().shards(1).capacity(14);
    let map: RcuMap<Slow, u64, FastHash> = RcuMap::with_options(&domain, options, FastHash::default());
    for change in [0, 1] {
        map.set(Slow(7), 70);
        domain.barrier();
        GATE.store(1, Ordering::SeqCst);
        std::thread::scope(|s| {
            let reader = s.spawn(|| {
                // From its first section on the thread has a slot.
                drop(domain.lock());
                map.copied(&Slow(7))
            });
            while GATE.load(Ordering::SeqCst) != 2 {
                std::thread::yield_now();
            }
            // Either the entry is removed and its place is wanted, or the whole table is replaced.
            if change == 0 {
                map.discard(&Slow(7));
                (100..400).for_each(|n| _ = map.set(Slow(7 + n % 3), n));
            } else {
                map.clear();
            }
            map.discard(&Slow(7));
            domain.reclaim_now();
            assert!(domain.stats().garbage_objects > 0);
            GATE.store(3, Ordering::SeqCst);
            assert_eq!(reader.join().unwrap(), Some(70));
        });
        domain.reclaim_now();
        assert_eq!(domain.stats().garbage_objects, 0);
    }
}
