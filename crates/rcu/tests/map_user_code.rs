//! Keys, values and closures that write to the map they are in, that use it from where they are called, or that break
//! promises.

mod common;
#[path = "common/fragile.rs"]
mod fragile;

use fragile::{Fragile, Shared};
use reprieve_rcu::RcuMap;
use reprieve_rcu::map::{Decision, Effect, FastHash, MapOptions};
use std::borrow::Borrow;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// Runs `test` on a thread of its own, which must end.
fn without_deadlock<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, done) = mpsc::channel();
    std::thread::spawn(move || send.send(test()));
    done.recv_timeout(Duration::from_secs(20)).expect("a deadlock, or a panic")
}

/// A hasher under which all keys have one home, so that tables turn out too small.
#[derive(Clone, Default)]
struct LastHome(u64);
impl Hasher for LastHome {
    fn finish(&self) -> u64 {
        (self.0 << 57) | ((1 << 41) - 1)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = self.0 * 31 + u64::from(b));
    }
}

type Echoes = RcuMap<u64, Echo, BuildHasherDefault<LastHome>>;

/// A value that, if it is loud, writes to the map that it is in when it is dropped. Clones are loud.
struct Echo {
    map: Weak<Echoes>,
    loud: bool,
    shared: Arc<Shared>,
}
impl Echo {
    fn new(map: &Arc<Echoes>, shared: &Arc<Shared>) -> Self {
        Self { map: Arc::downgrade(map), loud: false, shared: shared.clone() }
    }

    fn loud(map: &Arc<Echoes>, shared: &Arc<Shared>) -> Self {
        Self { map: Arc::downgrade(map), loud: true, shared: shared.clone() }
    }
}
impl Clone for Echo {
    fn clone(&self) -> Self {
        self.shared.step();
        Self { map: self.map.clone(), loud: true, shared: self.shared.clone() }
    }
}
impl Drop for Echo {
    fn drop(&mut self) {
        if self.loud
            && let Some(map) = self.map.upgrade()
        {
            self.shared.live.fetch_add(1, Ordering::Relaxed);
            map.discard(&1_000_000);
        }
    }
}

fn echoes() -> (Arc<Echoes>, Arc<Shared>) {
    let map = RcuMap::with_options(&common::domain(), MapOptions::new().shards(1), Default::default());
    (Arc::new(map), Arc::default())
}

/// If a rebuild copies entries into a table that turns out too small, the copies are dropped after the lock is
/// released.
#[test]
fn copies_made_in_vain_are_dropped_after_the_lock() {
    let in_vain = without_deadlock(|| {
        let (map, shared) = echoes();
        let mut in_vain = 0;
        for n in 0..300 {
            // Nothing is freed before the section ends, so what is dropped is what was copied in vain.
            let section = map.domain().lock();
            let before = shared.live.load(Ordering::Relaxed);
            map.set(n, Echo::new(&map, &shared));
            in_vain += shared.live.load(Ordering::Relaxed) - before;
            drop(section);
            map.domain().barrier();
        }
        in_vain
    });
    assert!(in_vain > 0, "no table was too small");
}

/// The same if a clone panics under the lock, with copies made before.
#[test]
fn copies_of_a_rebuild_that_panics_are_dropped_after_the_lock() {
    let dropped = without_deadlock(|| {
        let (map, shared) = echoes();
        (0..14).for_each(|n| assert!(!map.set(n, Echo::new(&map, &shared))));
        shared.fuse.store(10, Ordering::Relaxed);
        // The value to be stored writes to the map, too.
        let value = Echo::loud(&map, &shared);
        assert!(catch_unwind(AssertUnwindSafe(|| map.set(14, value))).is_err());
        shared.fuse.store(10, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| map.reserve(100))).is_err());
        shared.live.load(Ordering::Relaxed)
    });
    assert_eq!(dropped, 9 + 1 + 9);
}

/// A key whose clones write to the map that they are in when they are dropped.
struct LoudKey(u64, Option<Weak<LoudKeys>>, Arc<Shared>);
type LoudKeys = RcuMap<LoudKey, Fragile, FastHash>;
impl Clone for LoudKey {
    fn clone(&self) -> Self {
        Self(self.0, self.1.clone(), self.2.clone())
    }
}
impl Drop for LoudKey {
    fn drop(&mut self) {
        if let Some(map) = self.1.take().and_then(|map| map.upgrade()) {
            self.2.live.fetch_add(1, Ordering::Relaxed);
            map.discard(&Self(1_000, None, self.2.clone()));
        }
    }
}
impl Hash for LoudKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl PartialEq for LoudKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for LoudKey {}

/// The clone of the value panics after the key was cloned.
#[test]
fn a_key_whose_value_cannot_be_cloned_is_dropped_after_the_lock() {
    let dropped = without_deadlock(|| {
        let (shared, keys) = (Arc::new(Shared::default()), Arc::new(Shared::default()));
        let options = MapOptions::new().shards(1);
        let map: Arc<LoudKeys> =
            Arc::new(RcuMap::with_options(&common::domain(), options, FastHash::default()));
        let key = |n| LoudKey(n, Some(Arc::downgrade(&map)), keys.clone());
        (0..3).for_each(|n| assert!(!map.set(key(n), Fragile::new(n, &shared))));
        let quiet = LoudKey(1, None, keys.clone());
        shared.fuse.store(2, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| map.reserve(1_000))).is_err());
        let of_rebuild = keys.live.swap(0, Ordering::Relaxed);
        shared.fuse.store(1, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| map.remove_entry(&quiet))).is_err());
        shared.fuse.store(1, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| map.insert(key(1), Fragile::new(9, &shared)))).is_err());
        let of_one = keys.live.swap(0, Ordering::Relaxed);
        assert_eq!((contents_of(&map), map.len()), (3, 3));
        (of_rebuild, of_one)
    });
    assert_eq!(dropped, (2, 2));
}

fn contents_of(map: &LoudKeys) -> usize {
    map.pin().iter().filter(|(key, value)| key.0 == value.0).count()
}

/// A value, given or made, that is not needed, or whose operation panics, is dropped after the lock is released.
#[test]
fn values_that_are_not_stored_are_dropped_after_the_lock() {
    let dropped = without_deadlock(|| {
        let (map, shared) = echoes();
        let loud = || Echo::loud(&map, &shared);
        map.set(1, Echo::new(&map, &shared));
        shared.fuse.store(1, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| map.insert(1, loud()))).is_err());
        let view = map.pin();
        view.get_or_insert(1, loud());
        view.get_or_insert_with(2, || {
            map.set(2, Echo::new(&map, &shared));
            loud()
        });
        shared.live.load(Ordering::Relaxed)
    });
    assert_eq!(dropped, 3);
}

#[test]
fn closures_may_read_the_map_under_its_lock_and_write_to_it_outside() {
    let numbers = without_deadlock(|| {
        let map: RcuMap<u64, u64, FastHash> =
            RcuMap::with_options(&common::domain(), MapOptions::new().shards(1), FastHash::default());
        (&map).extend((0..10).map(|n| (n, n)));
        map.update(&1, |v| v + map.copied(&2).unwrap() + map.pin().get(&3).unwrap());
        map.compute(4, |_| Decision::Set(map.pin().values().sum()));
        map.retain(|key, _| map.pin().contains_key(key) && *key < 8);
        map.remove_if(&7, |_, _| map.len() == 8);
        assert_eq!(map.entry(50).or_insert_with(|| map.pin().len() as u64), Effect::Inserted);
        // This is not under the lock, so it may also write.
        let made = map.get_or_insert_with(60, || {
            map.set(60, 61);
            62
        });
        assert_eq!(made, 61, "the entry that came first stays");
        made + fibonacci(&map, 190)
    });
    assert_eq!(numbers, 61 + fibonacci_by_hand(90));
}

/// The (n - 100)-th Fibonacci number. The map remembers it.
fn fibonacci(map: &RcuMap<u64, u64, FastHash>, n: u64) -> u64 {
    *map.pin().get_or_insert_with(n, || match n - 100 {
        small @ 0..2 => small,
        _ => fibonacci(map, n - 1) + fibonacci(map, n - 2),
    })
}

fn fibonacci_by_hand(n: u64) -> u64 {
    (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0
}

/// A destructor that uses the map through a view, while a view removes its value.
#[test]
fn destructors_may_use_the_map_through_views() {
    struct Last(Weak<RcuMap<u64, Arc<Last>>>, u64);
    impl Drop for Last {
        fn drop(&mut self) {
            if let (Some(map), true) = (self.0.upgrade(), self.1 > 0) {
                let view = map.pin();
                view.insert(self.1 - 1, Arc::new(Self(self.0.clone(), self.1 - 1)));
                view.remove(&(self.1 - 1));
            }
        }
    }
    let left = without_deadlock(|| {
        let map = Arc::new(RcuMap::new(&common::domain()));
        map.set(100, Arc::new(Last(Arc::downgrade(&map), 100)));
        map.pin().remove(&100);
        map.domain().barrier();
        (map.len(), map.domain().stats().garbage_objects)
    });
    assert_eq!(left, (0, 0));
}

/// Threads that ask for one key at the same time get one value.
#[test]
fn get_or_insert_agrees_on_a_value() {
    let map: RcuMap<u64, Arc<u64>, FastHash> = RcuMap::default();
    for key in 0..500 {
        let start = std::sync::Barrier::new(3);
        let ask = |thread: u64| {
            let (map, start) = (&map, &start);
            move || {
                start.wait();
                match thread {
                    0 => map.get_or_insert_with(key, || Arc::new(thread)),
                    _ => map.pin().get_or_insert_with(key, || Arc::new(thread)).clone(),
                }
            }
        };
        std::thread::scope(|s| {
            let all: Vec<_> = (0..3).map(|thread| s.spawn(ask(thread))).collect();
            let all: Vec<_> = all.into_iter().map(|t| t.join().unwrap()).collect();
            assert!(all.iter().all(|value| Arc::ptr_eq(value, &all[0])));
        });
    }
}

/// A key that breaks the promise of `Borrow`: the map may lose the key, and nothing worse happens.
#[test]
fn keys_that_break_promises_do_no_harm() {
    #[derive(Clone, PartialEq, Eq)]
    struct Liar(String);
    impl Hash for Liar {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.len().hash(state);
        }
    }
    impl Borrow<str> for Liar {
        fn borrow(&self) -> &str {
            &self.0
        }
    }
    let map: RcuMap<Liar, u64> = RcuMap::default();
    for n in 0..1_000 {
        map.set(Liar(n.to_string()), n);
        map.discard(&*(n / 2).to_string());
        map.update(&*n.to_string(), |v| v + 1);
    }
    assert_eq!(map.pin().iter().count(), map.len());
}
