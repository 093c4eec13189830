//! What `RcuMap` holds: compared with `std`'s `HashMap`, and beside writers that change it all the time. For its
//! memory see `map_memory.rs`.

mod common;

use proptest::prelude::*;
use reprieve_rcu::map::{Decision, Effect, FastHash, MapOptions};
use reprieve_rcu::{Domain, RcuMap};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A hasher under which keys collide: there are only 4 hashes.
#[derive(Clone, Default)]
struct Poor(u64);
impl Hasher for Poor {
    fn finish(&self) -> u64 {
        (self.0 % 4) * 0x0101_0101_0101_0101
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = self.0 * 31 + u64::from(b));
    }
}
type PoorHash = BuildHasherDefault<Poor>;

/// A hasher under which all keys have one home, so that searches are long, but have different tags.
#[derive(Clone, Default)]
struct Clustered(u64);
impl Hasher for Clustered {
    fn finish(&self) -> u64 {
        self.0 << 57
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = self.0 * 31 + u64::from(b));
    }
}
type ClusteredHash = BuildHasherDefault<Clustered>;

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u64),
    Set(u16, u64),
    GetOrInsert(u16, u64),
    Remove(u16),
    Discard(u16),
    Reserve(u16),
    Update(u16),
    Entry(u16, u64),
    Toggle(u16),
    Retain(u16),
    Clear,
    Reclaim,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0..300u16;
    let op = prop_oneof![
        30 => (key(), any::<u64>()).prop_map(|(k, v)| Op::Insert(k, v)),
        30 => (key(), any::<u64>()).prop_map(|(k, v)| Op::Set(k, v)),
        10 => (key(), any::<u64>()).prop_map(|(k, v)| Op::GetOrInsert(k, v)),
        20 => key().prop_map(Op::Remove),
        15 => key().prop_map(Op::Discard),
        1 => (0..100u16).prop_map(Op::Reserve),
        20 => key().prop_map(Op::Update),
        10 => (key(), any::<u64>()).prop_map(|(k, v)| Op::Entry(k, v)),
        10 => key().prop_map(Op::Toggle),
        1 => (2..5u16).prop_map(Op::Retain),
        1 => Just(Op::Clear),
        5 => Just(Op::Reclaim),
    ];
    prop::collection::vec(op, 0..1500)
}

/// Applies `ops` to both kinds of map, and compares the results.
fn agree<S: BuildHasher + Default>(ops: &[Op], shards: usize) {
    let domain = common::domain();
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(shards), S::default());
    let mut model: HashMap<u16, u64> = HashMap::new();
    for op in ops {
        match *op {
            Op::Insert(k, v) => assert_eq!(map.insert(k, v), model.insert(k, v)),
            Op::Set(k, v) => assert_eq!(map.set(k, v), model.insert(k, v).is_some()),
            Op::Remove(k) => assert_eq!(map.remove(&k), model.remove(&k)),
            Op::Discard(k) => assert_eq!(map.discard(&k), model.remove(&k).is_some()),
            Op::Update(k) => {
                let present = model.get_mut(&k).map(|v| *v = v.wrapping_mul(3)).is_some();
                assert_eq!(map.update(&k, |v| v.wrapping_mul(3)), present);
            }
            Op::Entry(k, v) => {
                model.entry(k).and_modify(|old| *old ^= v).or_insert(v);
                map.entry(k).and_modify(|old| old ^ v).or_insert_with(|| v);
            }
            Op::GetOrInsert(k, v) => {
                assert_eq!(map.get_or_insert_with(k, || v), *model.entry(k).or_insert(v));
            }
            Op::Reserve(n) => map.reserve(n.into()),
            Op::Toggle(k) => {
                let effect =
                    map.compute(k, |v| if v.is_some() { Decision::Remove } else { Decision::Set(7) });
                let had = model.remove(&k).is_some();
                if !had {
                    model.insert(k, 7);
                }
                assert_eq!(effect, if had { Effect::Removed } else { Effect::Inserted });
            }
            Op::Retain(n) => {
                map.retain(|k, _| k % n != 0);
                model.retain(|k, _| k % n != 0);
            }
            Op::Clear => {
                map.clear();
                model.clear();
            }
            Op::Reclaim => domain.barrier(),
        }
    }
    let guard = domain.lock();
    assert_eq!(map.len(), model.len());
    assert_eq!(map.is_empty(), model.is_empty());
    for key in 0..300 {
        assert_eq!(map.get(&key, &guard), model.get(&key));
        assert_eq!(map.copied(&key), model.get(&key).copied());
        assert_eq!(map.contains_key(&key, &guard), model.contains_key(&key));
    }
    let seen: Vec<_> = map.iter(&guard).map(|(&k, &v)| (k, v)).collect();
    assert_eq!(seen.len(), model.len(), "nothing is seen twice when nobody writes");
    assert_eq!(seen.into_iter().collect::<HashMap<_, _>>(), model);
    assert_eq!(map.keys(&guard).collect::<HashSet<_>>(), model.keys().collect());
    assert_eq!(map.values(&guard).fold(0, |x, v| x ^ v), model.values().fold(0, |x, v| x ^ v));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_std(ops in ops(), shards in 1..5usize) {
        agree::<FastHash>(&ops, shards);
    }

    #[test]
    fn agrees_with_std_when_hashes_collide(ops in ops(), shards in 1..3usize) {
        agree::<PoorHash>(&ops, shards);
    }
}

/// Four words that belong together.
type Quad = [u64; 4];

fn quad(x: u64) -> Quad {
    [x, x.wrapping_mul(3), !x, x.rotate_left(17)]
}

fn check(quad_seen: &Quad) -> u64 {
    assert_eq!(*quad_seen, quad(quad_seen[0]), "a torn value");
    quad_seen[0]
}

/// Keys that stay, and keys that come and go.
const STAY: u64 = 64;
const CHURN: u64 = 2048;

/// Changes everything all the time: the values of the keys that stay, and whether the others are present.
fn churn<S: BuildHasher>(map: &RcuMap<u64, Quad, S>, done: &AtomicBool, seed: u64) {
    let mut x = seed;
    while !done.load(Ordering::Relaxed) {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = x >> 33;
        match x >> 28 & 7 {
            0..3 => drop(map.insert(STAY + key % CHURN, quad(x)).as_ref().map(check)),
            3..5 => drop(map.remove(&(STAY + key % CHURN)).as_ref().map(check)),
            5 => assert!(
                map.insert(key % STAY, quad(x)).is_some_and(|old| check(&old) == old[0]),
                "a key that stays was lost"
            ),
            6 => assert!(map.update(&(key % STAY), |v| quad(check(v) + 1)), "a key that stays was lost"),
            _ if key.is_multiple_of(512) => map.retain(|k, _| *k < STAY || k % 2 == 0),
            _ => {}
        }
    }
}

/// Runs `read` on one thread beside two that change the map, `rounds` times.
fn beside_writers<S: BuildHasher + Default + Sync>(
    shards: usize,
    batch: usize,
    rounds: usize,
    read: impl Fn(&RcuMap<u64, Quad, S>),
) {
    let domain = Domain::new(common::options().batch(batch));
    let mut map = RcuMap::with_options(&domain, MapOptions::new().shards(shards), S::default());
    map.extend((0..STAY).map(|key| (key, quad(key))));
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        (1..3).for_each(|seed| {
            drop(s.spawn({
                let (map, done) = (&map, &done);
                move || churn(map, done, seed)
            }))
        });
        let result = catch_unwind(AssertUnwindSafe(|| (0..rounds).for_each(|_| read(&map))));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let guard = domain.lock();
    assert_eq!(map.iter(&guard).count(), map.len());
}

fn get_all<S: BuildHasher>(map: &RcuMap<u64, Quad, S>) {
    for key in 0..STAY {
        let guard = map.domain().lock();
        check(map.get(&key, &guard).expect("a key that stays is found"));
    }
}

fn copy_all<S: BuildHasher>(map: &RcuMap<u64, Quad, S>) {
    for key in 0..STAY {
        check(&map.copied(&key).expect("a key that stays is found"));
        map.copied(&(STAY + key)).as_ref().map(check);
    }
}

fn iterate<S: BuildHasher>(map: &RcuMap<u64, Quad, S>) {
    let guard = map.domain().lock();
    let seen: HashSet<u64> =
        map.iter(&guard).inspect(|(_, v)| assert_eq!(check(v), v[0])).map(|(&k, _)| k).collect();
    assert!((0..STAY).all(|key| seen.contains(&key)), "a key that stays was not seen");
}

#[test]
fn present_keys_are_found_whatever_others_do() {
    beside_writers::<FastHash>(1, 1, 3_000, get_all);
    beside_writers::<FastHash>(4, 64, 3_000, get_all);
    beside_writers::<ClusteredHash>(1, 1, 1_000, get_all);
}

#[test]
fn present_keys_are_found_in_restartable_sections() {
    beside_writers::<FastHash>(1, 1, 3_000, copy_all);
    beside_writers::<FastHash>(4, 64, 3_000, copy_all);
    beside_writers::<ClusteredHash>(1, 1, 1_000, copy_all);
}

#[test]
fn iteration_sees_all_keys_that_stay() {
    beside_writers::<FastHash>(1, 1, 500, iterate);
    beside_writers::<FastHash>(4, 64, 500, iterate);
    beside_writers::<ClusteredHash>(1, 1, 300, iterate);
}

/// A value that takes long to write and to copy: one number, many times.
type Block = [u64; 256];

fn same(block: &Block) -> u64 {
    assert!(block.iter().all(|&n| n == block[0]), "a torn value");
    block[0]
}

/// A key that comes and goes.
const GUEST: u64 = 100;

/// Updates four keys as quickly as possible, beside a reader of the same keys.
fn hot(read: impl Fn(&RcuMap<u64, Block, ClusteredHash>, u64) -> Option<u64>) {
    let domain = Domain::new(common::options().batch(4));
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(1), ClusteredHash::default());
    (0..32).for_each(|key| assert!(!map.set(key, [0; 256])));
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in 1..40_000 {
                assert!(map.set(n % 4 * 8, [n; 256]));
                assert!(!map.set(GUEST, [n; 256]));
                assert!(map.discard(&GUEST));
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut last = [0; 4];
        while !done.load(Ordering::Relaxed) {
            read(&map, GUEST);
            for (key, last) in last.iter_mut().enumerate() {
                let seen = read(&map, key as u64 * 8).expect("a key that stays is found");
                assert!(seen >= *last, "a value that was replaced came back");
                *last = seen;
            }
        }
    });
}

#[test]
fn hot_keys_are_found_and_their_values_never_go_back() {
    hot(|map, key| map.get(&key, &map.domain().lock()).map(same));
    hot(|map, key| map.copied(&key).as_ref().map(same));
}

#[test]
fn keys_that_collide_do_not_cause_a_rebuild_each() {
    let domain = common::domain();
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(1), ClusteredHash::default());
    let clones = Arc::new(AtomicUsize::new(0));
    /// Counts its clones.
    struct Cloned(Arc<AtomicUsize>);
    impl Clone for Cloned {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::Relaxed);
            Self(self.0.clone())
        }
    }
    (0..2_000).for_each(|n| assert!(!map.set(n, Cloned(clones.clone()))));
    let clones = clones.load(Ordering::Relaxed);
    assert!(clones < 5 * 2_000, "{clones} clones for 2,000 insertions");
}

#[test]
fn a_value_lives_as_long_as_the_section_that_found_it() {
    let domain = common::domain();
    let map = RcuMap::new(&domain);
    map.set(1, quad(1));
    let guard = domain.lock();
    let one = map.get(&1, &guard).unwrap();
    map.discard(&1);
    // This could overwrite the entry, because the slot is the first of its group.
    (0..100).for_each(|n| assert_eq!(map.set(1, quad(n)), n > 0));
    (2..100).for_each(|n| assert!(!map.set(n, quad(n))));
    map.clear();
    drop(map);
    assert_eq!(check(one), 1);
}

#[test]
fn many_updates_of_one_key_stay_near_its_home() {
    let domain = common::domain();
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(1), FastHash::default());
    (0..1000).for_each(|n| assert_eq!(map.insert(n, 0), None));
    (0..10_000).for_each(|_| assert!(map.update(&7, |v| v + 1)));
    assert_eq!((map.copied(&7), map.len()), (Some(10_000), 1000));
}

/// A key that, if it is loud, writes to its map when it is dropped.
#[derive(Debug)]
struct Noisy(u64, bool);
static NOISY: OnceLock<RcuMap<Noisy, u64>> = OnceLock::new();

impl Drop for Noisy {
    fn drop(&mut self) {
        if self.1 {
            NOISY.get().unwrap().set(Self(self.0, false), 1);
        }
    }
}
impl Clone for Noisy {
    fn clone(&self) -> Self {
        Self(self.0, false)
    }
}
impl PartialEq for Noisy {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Noisy {}
impl Hash for Noisy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A key, or what a closure holds, may write to its own shard when it is dropped. Under that shard's lock it would
/// wait for itself.
#[test]
fn what_an_operation_does_not_store_is_dropped_after_it() {
    let (send, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = MapOptions::new().shards(1);
        let map = NOISY.get_or_init(|| RcuMap::with_options(&common::domain(), options, Default::default()));
        map.set(Noisy(0, false), 0);
        let (value, change) = (Noisy(1, true), Noisy(2, true));
        let insert = move || std::convert::identity(&value).0;
        map.entry(Noisy(0, false)).or_insert_with(insert);
        let modify = move |_: &u64| std::convert::identity(&change).0;
        map.entry(Noisy(9, false)).and_modify(modify).or_nothing();
        map.compute(Noisy(3, true), |_| Decision::Keep);
        let guard = map.domain().lock();
        let seen: Vec<u64> = (0..10).filter(|&n| map.contains_key(&Noisy(n, false), &guard)).collect();
        send.send(seen).unwrap();
    });
    let seen = done.recv_timeout(std::time::Duration::from_secs(20)).expect("a deadlock");
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
#[should_panic(expected = "not one of the map's domain")]
fn sections_of_other_domains_are_refused() {
    let (one, other) = (common::domain(), common::domain());
    RcuMap::<u64, u64>::new(&one).get(&1, &other.lock());
}

#[test]
fn large_alignments_and_empty_entries() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(256))]
    struct Wide(u8);
    let domain = common::domain();
    let wide = RcuMap::new(&domain);
    (0..200u8).for_each(|n| assert_eq!(wide.insert(n, Wide(n)), None));
    let guard = domain.lock();
    (0..200u8).for_each(|n| assert_eq!(wide.get(&n, &guard), Some(&Wide(n))));
    assert!(wide.values(&guard).all(|v| std::ptr::from_ref(v).addr() % 256 == 0));
    let unit = RcuMap::new(&domain);
    assert_eq!(
        [unit.insert((), ()), unit.insert((), ()), unit.remove(&()), unit.remove(&())],
        [None, Some(()), Some(()), None]
    );
}
