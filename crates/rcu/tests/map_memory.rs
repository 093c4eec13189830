//! What `RcuMap` does with memory: entries are dropped once, limits refuse before anything changes, and panics of the
//! user's code lose nothing.

mod common;

use reprieve_rcu::map::{FastHash, MapOptions};
use reprieve_rcu::{AtLimit, Domain, Full, RcuMap};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts how many of it live.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>, Box<u64>);
impl Counted {
    fn new(live: &Arc<AtomicUsize>, n: u64) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self(live.clone(), Box::new(n))
    }
}
impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.0, *self.1)
    }
}
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}
impl Eq for Counted {}
impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.hash(state);
    }
}

#[test]
fn everything_is_dropped_once() {
    let live = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new(common::options().batch(8));
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(2), FastHash::default());
    std::thread::scope(|s| {
        for seed in 1..4u64 {
            let (map, live) = (&map, &live);
            s.spawn(move || {
                let mut x = seed;
                for _ in 0..20_000 {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                    let key = Counted::new(live, x >> 40 & 255);
                    match x >> 33 & 7 {
                        0..2 => drop(map.insert(key, Counted::new(live, x))),
                        2 => drop(map.set(key, Counted::new(live, x))),
                        3 if x >> 36 & 1 == 0 => drop(map.update(&key, Clone::clone)),
                        3 => drop(map.get_or_insert_with(key, || Counted::new(live, x))),
                        4 if x >> 36 & 15 == 0 => map.clear(),
                        5 if x >> 36 & 15 == 0 => map.retain(|k, _| *k.1 % 3 == 0),
                        6 if x >> 36 & 63 == 0 => map.reserve(100),
                        6 => drop(map.remove(&key)),
                        _ => drop(map.discard(&key)),
                    }
                }
            });
        }
    });
    domain.barrier();
    assert_eq!(live.load(Ordering::Relaxed), 2 * map.len(), "only what is in the map lives");
    drop(map);
    domain.barrier();
    assert_eq!(live.load(Ordering::Relaxed), 0);
    assert_eq!((domain.stats().garbage_objects, domain.stats().garbage_bytes), (0, 0));
}

#[test]
fn a_full_domain_refuses_before_anything_changes() {
    let domain = Domain::new(common::options().limit_objects(1).at_limit(AtLimit::NoWait));
    let live = Arc::new(AtomicUsize::new(0));
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(1).capacity(14), FastHash::default());
    let value = |n| Counted::new(&live, n);
    (0..14).for_each(|n| assert_eq!(map.try_insert(n, value(n)), Ok(None)));
    let guard = domain.lock();
    assert_eq!(map.try_discard(&0), Ok(true), "there is room for one object");
    let full = |r: Result<bool, Full>| assert_eq!(r.unwrap_err().objects, 1);
    full(map.try_discard(&1));
    full(map.try_remove(&1).map(|_| true));
    full(map.try_insert(1, value(100)).map(|_| true));
    full(map.try_set(1, value(100)));
    full(map.try_update(&1, |_| unreachable!()));
    full(map.try_compute(1, |_| unreachable!()).map(|_| true));
    full(map.try_compute_ref(&1, |_| unreachable!()).map(|_| true));
    full(map.try_set(99, value(99)));
    assert!(map.try_retain(|_, _| unreachable!()).is_err());
    assert!(map.try_clear().is_err());
    assert_eq!(map.try_discard(&0), Ok(false), "nothing to remove, no room needed");
    assert_eq!(map.try_update(&0, |_| unreachable!()), Ok(false));
    assert_eq!(
        (1..14).filter_map(|n| map.get(&n, &guard)).map(|v| *v.1).collect::<Vec<_>>(),
        (1..14).collect::<Vec<_>>()
    );
    assert_eq!((map.len(), live.load(Ordering::Relaxed)), (13, 14));
    drop(guard);
    domain.barrier();
    assert_eq!(domain.stats().garbage_bytes, 0, "rooms that were not used are given back");
    assert_eq!(map.try_set(1, value(100)), Ok(true));
    assert_eq!(map.try_set(99, value(99)), Ok(false), "the table is rebuilt now");
    drop(map);
    domain.barrier();
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

/// Panics at a given number of clones, hashes or comparisons.
#[derive(Debug)]
struct Fragile(u64, Arc<AtomicU64>);
impl Fragile {
    fn step(&self) {
        if self.1.load(Ordering::Relaxed) != 0 && self.1.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("expected");
        }
    }
}
impl Clone for Fragile {
    fn clone(&self) -> Self {
        self.step();
        Self(self.0, self.1.clone())
    }
}
impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.step();
        self.0.hash(state);
    }
}
impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        self.step();
        self.0 == other.0
    }
}
impl Eq for Fragile {}

#[test]
fn panics_of_keys_and_values_leave_the_map_as_it_was() {
    let (domain, fuse, live) = (common::domain(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let key = |n| Fragile(n, fuse.clone());
    let mut panics = 0;
    for at in 1..60 {
        let map = RcuMap::with_options(&domain, MapOptions::new().shards(1), FastHash::default());
        (0..14).for_each(|n| assert!(!map.set(key(n), Counted::new(&live, n))));
        fuse.store(at, Ordering::Relaxed);
        // The table is full, so a new key causes it to be rebuilt.
        let result = catch_unwind(AssertUnwindSafe(|| map.set(key(14), Counted::new(&live, 14))));
        fuse.store(0, Ordering::Relaxed);
        let len = if result.is_err() { 14 } else { 15 };
        panics += usize::from(result.is_err());
        let guard = domain.lock();
        (0..len).for_each(|n| assert_eq!(*map.get(&key(n), &guard).unwrap().1, n));
        assert_eq!(map.len(), len as usize);
        drop(guard);
        domain.barrier();
        assert_eq!(live.load(Ordering::Relaxed), len as usize, "copies of a rebuild that failed are dropped");
        assert!(catch_unwind(AssertUnwindSafe(|| map.update(&key(3), |_| panic!("expected")))).is_err());
        assert!(map.set(key(3), Counted::new(&live, 33)), "the lock is free");
    }
    assert!(panics > 20, "{panics} panics");
    domain.barrier();
    assert_eq!((live.load(Ordering::Relaxed), domain.stats().garbage_bytes), (0, 0));
}

/// Panics when it is dropped, if it is set to.
#[derive(Clone)]
struct Bomb(bool, Arc<AtomicUsize>);
impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0, "expected");
    }
}

#[test]
fn a_drop_that_panics_neither_leaks_the_table_nor_is_repeated() {
    let (domain, drops) = (Domain::new(common::options().batch(100)), Arc::new(AtomicUsize::new(0)));
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(1), FastHash::default());
    map.set(1, Bomb(true, drops.clone()));
    assert!(map.discard(&1));
    assert!(catch_unwind(AssertUnwindSafe(|| domain.barrier())).is_err());
    assert_eq!((drops.load(Ordering::Relaxed), map.len()), (1, 0));
    (0..10).for_each(|n| assert!(!map.set(n, Bomb(false, drops.clone()))));
    drop(map);
    domain.barrier();
    assert_eq!((domain.stats().garbage_objects, drops.load(Ordering::Relaxed)), (0, 11));
}

#[test]
fn writers_may_be_readers_in_a_section() {
    let domain = Domain::new(common::options().limit_bytes(1 << 12));
    let map: RcuMap<u64, u64> = RcuMap::new(&domain);
    let guard = domain.lock();
    for n in 0..10_000 {
        map.set(n % 100, n);
        assert_eq!(map.get(&(n % 100), &guard), Some(&n));
    }
}

#[test]
fn drops_may_write_to_the_map() {
    /// Writes to a map when it is dropped.
    #[derive(Clone)]
    struct Echo(Option<Arc<RcuMap<u64, u64>>>);
    impl Drop for Echo {
        fn drop(&mut self) {
            if let Some(map) = &self.0 {
                map.entry(0).and_modify(|n| n + 1).or_insert(1);
            }
        }
    }
    let domain = common::domain();
    let echoes: Arc<RcuMap<u64, u64>> = Arc::new(RcuMap::new(&domain));
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(1), FastHash::default());
    (0..5).for_each(|n| assert!(!map.set(n, Echo(Some(echoes.clone())))));
    (0..5).for_each(|n| assert!(map.discard(&n)));
    domain.barrier();
    assert_eq!(echoes.copied(&0), Some(5));
}
