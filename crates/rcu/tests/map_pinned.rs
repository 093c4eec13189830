//! What a pinned view promises: its references stay good whatever becomes of the entries, and it waits for nobody,
//! least of all for itself.

mod common;

use reprieve_rcu::map::{FastHash, MapOptions};
use reprieve_rcu::{AtLimit, Domain, RcuMap};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// A value that records whether it was dropped, which shows sooner than freed memory would.
#[derive(Debug)]
struct Alive(u64, Arc<AtomicUsize>, AtomicBool);
impl Alive {
    fn new(n: u64, drops: &Arc<AtomicUsize>) -> Self {
        Self(n, drops.clone(), AtomicBool::new(true))
    }
    fn get(&self) -> u64 {
        assert!(self.2.load(Ordering::Relaxed), "a value was used after its drop");
        self.0
    }
}
impl Clone for Alive {
    fn clone(&self) -> Self {
        Self::new(self.get(), &self.1)
    }
}
impl Drop for Alive {
    fn drop(&mut self) {
        assert!(self.2.swap(false, Ordering::Relaxed), "a value was dropped twice");
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

type Map = RcuMap<u64, Alive, FastHash>;

/// A map of one shard, so that all operations meet there.
fn map(domain: &Domain, entries: u64) -> (Map, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    let map = RcuMap::with_options(domain, MapOptions::new().shards(1), FastHash::default());
    (0..entries).for_each(|n| assert!(!map.set(n, Alive::new(n, &drops))));
    domain.barrier();
    drops.store(0, Ordering::Relaxed);
    (map, drops)
}

/// Does everything to the map that makes garbage.
fn ravage(map: &Map, drops: &Arc<AtomicUsize>) {
    for n in 0..200 {
        map.set(n, Alive::new(1_000 + n, drops));
        map.update(&(n / 2), |v| Alive::new(v.get() + 1, drops));
        map.discard(&(n / 3));
    }
    map.reserve(10_000);
    map.retain(|key, _| key % 2 == 0);
    map.clear();
    (0..200).for_each(|n| assert!(!map.set(n, Alive::new(n, drops))));
    map.domain().reclaim_now();
}

/// Takes a reference by each method, changes the map by `wreck`, and checks the references again.
fn references_hold(domain: &Domain, wreck: impl Fn(&Map, &Arc<AtomicUsize>)) {
    let (map, drops) = map(domain, 10);
    let view = map.pin();
    let new = |n| Alive::new(n, &drops);
    let found = [
        view.get(&0).unwrap(),
        view.get_key_value(&1).unwrap().1,
        view.insert(2, new(22)).unwrap(),
        view.update(&3, |v| new(v.get() + 30)).unwrap(),
        view.remove(&4).unwrap(),
        view.remove_entry(&5).unwrap().1,
        view.remove_if(&6, |key, value| *key == value.get()).unwrap().1,
        view.get_or_insert(7, new(77)),
        view.get_or_insert(8, new(88)),
        view.get_or_insert_with(9, || unreachable!("9 is there")),
        view.get_or_insert_with(10, || new(10)),
        view.get_or_insert_with_ref(&11, || new(11)),
    ];
    let all: Vec<_> = view.iter().collect();
    let (keys, values): (Vec<_>, Vec<_>) = (view.keys().collect(), view.values().collect());
    let [before, unused] = [drops.load(Ordering::Relaxed), 2];
    assert_eq!(before, unused, "only values that were not needed are dropped beside a view");
    wreck(&map, &drops);
    let seen: Vec<_> = found.iter().map(|value| value.get()).collect();
    assert_eq!(seen, [0, 1, 2, 33, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(all.len(), 9);
    for (&key, value) in all {
        assert_eq!(value.get(), [0, 1, 22, 33, 0, 0, 0, 7, 8, 9, 10, 11][key as usize]);
    }
    assert_eq!(keys.into_iter().sum::<u64>(), (0..12).sum::<u64>() - 4 - 5 - 6);
    assert_eq!(values.into_iter().map(Alive::get).sum::<u64>(), 22 + 33 + 1 + 7 + 8 + 9 + 10 + 11);
    drop(view);
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0, "what a view held is freed after it");
}

#[test]
fn references_outlive_the_entries_that_the_same_thread_changes() {
    references_hold(&common::domain(), ravage);
    references_hold(&Domain::new(common::options().batch(16)), ravage);
}

#[test]
fn references_outlive_the_entries_that_other_threads_change() {
    let by_others = |map: &Map, drops: &Arc<AtomicUsize>| {
        std::thread::scope(|s| (0..2).for_each(|_| drop(s.spawn(|| ravage_beside_others(map, drops)))));
    };
    references_hold(&common::domain(), by_others);
    references_hold(&Domain::new(common::options().batch(16)), by_others);
}

/// As `ravage`, but expects nothing that other threads could spoil.
fn ravage_beside_others(map: &Map, drops: &Arc<AtomicUsize>) {
    for n in 0..200 {
        map.set(n, Alive::new(1_000 + n, drops));
        map.discard(&(n / 3));
    }
    map.reserve(10_000);
    map.clear();
    map.domain().reclaim_now();
}

#[test]
fn a_view_at_the_limits_exceeds_them_and_does_not_wait_for_itself() {
    let policies = [AtLimit::Reclaim, AtLimit::Wait { timeout_ns: 1_000_000_000_000 }, AtLimit::NoWait];
    for policy in policies {
        let domain = Domain::new(common::options().limit_objects(1).at_limit(policy));
        let (done, finished) = mpsc::channel();
        let writer = domain.clone();
        std::thread::spawn(move || {
            let (map, drops) = map(&writer, 10);
            let view = map.pin();
            for n in 0..100 {
                assert!(view.insert(n % 10, Alive::new(n, &drops)).is_some());
                assert!(view.remove(&(n % 10)).is_some());
                view.get_or_insert_with(n % 10, || Alive::new(n, &drops));
            }
            let held = writer.stats().garbage_objects;
            drop(view);
            map.discard(&0);
            done.send((held, writer.stats().garbage_objects)).unwrap();
        });
        let counts = finished.recv_timeout(Duration::from_secs(20)).expect("it waits for itself");
        assert_eq!(counts.1, 0, "{policy:?}: the next call that retires frees what the view held");
        assert!(counts.0 >= 200, "{policy:?}: {} objects are held", counts.0);
    }
}

#[test]
fn plain_operations_exceed_the_limits_that_fallible_ones_keep() {
    let domain = Domain::new(common::options().limit_objects(3).at_limit(AtLimit::NoWait));
    let (map, drops) = map(&domain, 20);
    let _section = domain.lock();
    let mut refused = 0;
    for n in 0..10 {
        refused += usize::from(map.try_discard(&n).is_err());
    }
    assert_eq!((refused, map.len()), (7, 17));
    for n in 3..20 {
        assert_eq!(map.remove(&n).map(|v| v.get()), Some(n));
        assert_eq!(map.insert(n, Alive::new(n, &drops)).map(|v| v.get()), None);
        assert!(map.update(&n, Clone::clone));
    }
    map.retain(|key, _| key % 2 == 0);
    map.clear();
    assert!(map.is_empty() && domain.stats().garbage_objects > 3);
}

#[test]
fn references_through_a_leaked_view_stay_good() {
    let domain = common::domain();
    let (map, drops) = map(&domain, 10);
    let view: &_ = Box::leak(Box::new(map.pin()));
    let (kept, removed) = (view.get(&0).unwrap(), view.remove(&1).unwrap());
    mem::forget(map.pin());
    std::thread::scope(|s| {
        s.spawn(|| ravage_beside_others(&map, &drops));
        // References, unlike views, may go to other threads.
        s.spawn(|| (0..1_000).for_each(|_| assert_eq!((kept.get(), removed.get()), (0, 1))));
    });
    ravage(&map, &drops);
    assert_eq!((kept.get(), removed.get()), (0, 1));
}

/// Fails until the record of a thread that leaked a section stays in that section.
#[test]

fn references_through_a_view_that_an_ended_thread_leaked_stay_good() {
    // Leaked, too, because a domain's end would wait for its sections.
    let domain: &'static Domain = Box::leak(Box::default());
    let (map, drops) = map(domain, 10);
    std::thread::scope(|s| {
        let leak = || {
            let view: &_ = Box::leak(Box::new(map.pin()));
            (view.get(&0).unwrap(), view.remove(&1).unwrap())
        };
        let (kept, removed) = s.spawn(leak).join().unwrap();
        ravage_beside_others(&map, &drops);
        assert_eq!((kept.get(), removed.get()), (0, 1));
    });
}

#[test]
fn a_view_that_unwinds_ends_its_section() {
    let domain = common::domain();
    let (map, _drops) = map(&domain, 10);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let view = map.pin();
        view.remove(&1);
        panic!("expected");
    }));
    assert!(panicked.is_err());
    domain.synchronize_until(Instant::now() + Duration::from_secs(20)).expect("no section is left");
}

#[test]
fn views_nest_and_are_sections_for_other_structures_of_the_domain() {
    let domain = common::domain();
    let (one, other) = (map(&domain, 3).0, map(&domain, 5).0);
    let view = one.pin();
    let inner = one.pin();
    assert_eq!(inner.len(), 3);
    drop(inner);
    assert_eq!(other.get(&4, view.guard()).unwrap().get(), 4);
    assert_eq!(other.iter(view.guard()).count(), 5);
    assert_eq!(std::ptr::from_ref(view.map()), &raw const one);
}

/// Readers that keep references while writers replace as much as they can.
#[test]
fn views_hold_beside_writers() {
    let domain = Domain::new(common::options().batch(8));
    let (map, drops) = map(&domain, 50);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for seed in 0..2 {
            let (map, drops, done) = (&map, &drops, &done);
            s.spawn(move || {
                for n in 0..20_000 {
                    let (view, key) = (map.pin(), (n * 7 + seed) % 50);
                    let old = view.insert(key, Alive::new(n, drops)).map(Alive::get);
                    let removed = view.remove(&((n * 3) % 50));
                    let new = view.get_or_insert_with(key, || Alive::new(n, drops));
                    assert!(old.is_none_or(|n| n < 20_000) && removed.is_none_or(|v| v.get() < 20_000));
                    assert!(new.get() < 20_000);
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        while !done.load(Ordering::Relaxed) {
            let view = map.pin();
            let all: Vec<_> = view.values().collect();
            assert!(all.iter().all(|value| value.get() < 20_000));
        }
    });
}
