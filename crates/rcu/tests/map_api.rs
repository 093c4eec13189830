//! What users of maps expect besides the operations: reserving, borrowed keys, conversions, and no needless bounds.

mod common;

use reprieve_rcu::RcuMap;
use reprieve_rcu::map::{Decision, Effect, FastHash, MapOptions, Pinned, Plain};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts its clones.
#[derive(Debug)]
struct Cloned(u64, Arc<AtomicUsize>);
impl Clone for Cloned {
    fn clone(&self) -> Self {
        self.1.fetch_add(1, Ordering::Relaxed);
        Self(self.0, self.1.clone())
    }
}
impl PartialEq for Cloned {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Cloned {}
impl Hash for Cloned {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

fn counted() -> (impl Fn(u64) -> Cloned, impl Fn() -> usize) {
    let clones = Arc::new(AtomicUsize::new(0));
    let counter = clones.clone();
    (move |n| Cloned(n, clones.clone()), move || counter.swap(0, Ordering::Relaxed))
}

/// Clones reveal rebuilds.
#[test]
fn what_was_reserved_for_is_inserted_without_a_rebuild() {
    for shards in [1, 16, 64] {
        for before in [0, 10, 1_000] {
            let (value, clones) = counted();
            let options = MapOptions::new().shards(shards);
            let map = RcuMap::with_options(&common::domain(), options, FastHash::default());
            (0..before).for_each(|n| assert!(!map.set(n, value(n))));
            map.reserve(20_000);
            clones();
            (0..20_000).for_each(|n| assert!(!map.set(before + n, value(n))));
            assert_eq!(clones(), 0, "{shards} shards, {before} entries before");
            assert_eq!(map.len() as u64, before + 20_000);
        }
    }
}

#[test]
fn what_was_reserved_survives_a_rebuild_for_another_reason() {
    let (value, clones) = counted();
    let options = MapOptions::new().shards(1);
    let map = RcuMap::with_options(&common::domain(), options, FastHash::default());
    map.set(0, value(0));
    map.reserve(5_000);
    // Updates beside a reader use up the free slots.
    let section = map.domain().lock();
    (0..20_000).for_each(|n| assert!(map.set(0, value(n))));
    drop(section);
    map.domain().barrier();
    assert!(clones() > 0, "no rebuild");
    (1..4_000).for_each(|n| assert!(!map.set(n, value(n))));
    assert_eq!(clones(), 0);
}

#[test]
fn a_reserve_for_more_than_there_can_be_changes_nothing() {
    let map = RcuMap::from([(1u64, [1u64; 8])]);
    assert!(catch_unwind(|| map.reserve(usize::MAX)).is_err());
    map.reserve(0);
    (&map).extend((0..1_000).map(|n| (n, [n; 8])));
    assert_eq!((map.len(), map.copied(&1)), (1_000, Some([1; 8])));
}

#[test]
fn only_results_that_are_asked_for_are_cloned() {
    let (value, clones) = counted();
    let options = MapOptions::new().shards(1).capacity(100);
    let map = RcuMap::with_options(&common::domain(), options, FastHash::default());
    assert!(!map.set(value(1), value(1)));
    assert!(map.set(value(1), value(2)));
    map.compute(value(1), |_| Decision::Set(value(3)));
    map.entry(value(1)).and_modify(|_| value(4)).or_nothing();
    map.try_set(value(2), value(2)).unwrap();
    assert!(map.discard(&value(2)));
    let view = map.pin();
    view.insert(value(2), value(2));
    view.insert(value(2), value(3));
    view.remove_entry(&value(2));
    view.get_or_insert_with(value(3), || value(3));
    view.get_or_insert(value(3), value(4));
    map.retain(|_, v| v.0 == 3);
    map.clear();
    assert_eq!(map.insert(value(1), value(1)), None);
    assert_eq!(clones(), 0);
    assert_eq!(map.insert(value(1), value(5)), Some(value(1)));
    assert_eq!(map.try_insert(value(1), value(6)).unwrap(), Some(value(5)));
    assert_eq!(map.get_or_insert_with(value(1), || unreachable!()), value(6));
    assert_eq!(map.remove_if(&value(1), |_, _| false), None);
    assert_eq!(clones(), 3);
    assert!(map.update(&value(1), |_| value(7)));
    assert_eq!(clones(), 1, "the key that is there");
    assert_eq!(map.remove_entry(&value(1)), Some((value(1), value(7))));
    assert_eq!((map.remove(&value(1)), clones()), (None, 2));
}

#[test]
fn keys_that_are_lent_are_made_when_they_are_stored() {
    let (key, clones) = counted();
    let options = MapOptions::new().shards(1).capacity(100);
    let map = RcuMap::with_options(&common::domain(), options, FastHash::default());
    let (one, two, three) = (key(1), key(2), key(3));
    assert_eq!(map.compute_ref(&one, |_| Decision::Keep), Effect::Kept);
    assert_eq!(map.compute_ref(&one, |_| Decision::Remove), Effect::Kept);
    assert_eq!(map.entry_ref(&one).and_modify(|n| n + 1).or_nothing(), Effect::Kept);
    assert_eq!(clones(), 0);
    assert_eq!(map.compute_ref(&one, |_| Decision::Set(1)), Effect::Inserted);
    assert_eq!(map.entry_ref(&two).or_default(), Effect::Inserted);
    assert_eq!(map.get_or_insert_with_ref(&three, || 3), 3);
    assert_eq!(clones(), 3);
    assert_eq!(map.get_or_insert_with_ref(&three, || 4), 3);
    assert_eq!(*map.pin().get_or_insert_with_ref(&two, || 4), 0);
    assert_eq!(map.entry_ref(&two).or_insert(5), Effect::Kept);
    assert_eq!(map.try_compute_ref(&one, |_| Decision::Remove), Ok(Effect::Removed));
    assert_eq!((clones(), map.len()), (0, 2));

    let names: RcuMap<String, u64> = RcuMap::default();
    assert_eq!(names.get_or_insert_with_ref("one", || 1), 1);
    assert_eq!(names.compute_ref("one", |n| Decision::Set(n.unwrap() + 1)), Effect::Replaced);
    assert_eq!(names.remove_entry("one"), Some(("one".to_owned(), 2)));
}

#[test]
fn maps_come_from_collections_and_compare_with_each_other() {
    let array = RcuMap::from([(1, 'a'), (2, 'b'), (2, 'c')]);
    let collected: RcuMap<_, _> = HashMap::from([(1, 'a'), (2, 'c')]).into_iter().collect();
    assert_eq!(array, collected);
    let mut copy = array.clone();
    assert_eq!(copy, array);
    copy.extend(&BTreeMap::from([(3, 'd')]));
    (&copy).extend([(4, 'e')]);
    assert_ne!(copy, array);
    assert!(copy.discard(&3) && copy.discard(&4));
    assert_eq!(copy, array);
    copy.set(2, 'x');
    assert_ne!(copy, array, "another value");
    assert_eq!(copy.pin().get(&1), Some(&'a'));
    let one = RcuMap::from([(1, "one")]);
    assert_eq!(
        (format!("{one:?}"), format!("{:?}", one.pin())),
        (r#"{1: "one"}"#.into(), r#"{1: "one"}"#.into())
    );
    let view = one.pin();
    let mut entries = view.iter();
    assert_eq!(format!("{entries:?} {:?} {:?}", view.keys(), view.values()), r#"[(1, "one")] [1] ["one"]"#);
    let again = entries.clone();
    assert_eq!((entries.next(), entries.next()), (Some((&1, &"one")), None));
    assert_eq!(format!("{entries:?} {again:?}"), r#"[] [(1, "one")]"#);
    let view = array.pin();
    let mut seen = Vec::new();
    for (&key, &value) in &view {
        seen.push((key, value));
    }
    seen.sort();
    assert_eq!(seen, [(1, 'a'), (2, 'c')]);
}

#[test]
fn a_clone_is_another_map_of_the_same_domain() {
    let domain = common::domain();
    let map = RcuMap::with_options(&domain, MapOptions::new().shards(2), FastHash::default());
    (&map).extend((0..1_000u64).map(|n| (n, n)));
    let clone = map.clone();
    map.clear();
    drop(map);
    domain.barrier();
    assert_eq!((clone.len(), domain.stats().garbage_objects), (1_000, 0));
    assert!((0..1_000).all(|n| clone.copied(&n) == Some(n)));
}

/// A map in a static, without a domain to pass around.
#[test]
fn a_map_may_be_static() {
    static MAP: std::sync::LazyLock<RcuMap<u64, String>> = std::sync::LazyLock::new(RcuMap::default);
    std::thread::scope(|s| (0..4).for_each(|n| drop(s.spawn(move || MAP.insert(n, n.to_string())))));
    assert_eq!(MAP.pin().get(&3).unwrap(), "3");
}

/// That this compiles is the test: operations that neither insert nor return a clone do not require `Clone`, and
/// those that look at nothing do not require `Hash` either.
#[expect(dead_code, reason = "to be compiled")]
fn without_clone<K, V, S>(map: &RcuMap<K, V, S>, view: &Pinned<'_, K, V, S>, key: &K)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    let guard = map.domain().lock();
    let _ = (
        map.get(key, &guard).is_some(),
        map.get_key_value(key, &guard).is_some(),
        map.contains_key(key, &guard),
    );
    let _ = (map.discard(key), map.try_discard(key));
    view.get(key);
    view.get_key_value(key);
    view.contains_key(key);
    view.remove(key);
    view.remove_entry(key);
    view.remove_if(key, |_, _| true);
}

#[expect(dead_code, reason = "to be compiled")]
fn without_hash<K, V, S>(map: &RcuMap<K, V, S>, view: &Pinned<'_, K, V, S>)
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let guard = map.domain().lock();
    let _ = (map.iter(&guard).count(), map.keys(&guard).count(), map.values(&guard).count());
    let _ = (map.len(), map.is_empty(), view.len(), view.is_empty());
    let _ = (view.iter().count(), view.keys().count(), view.values().count(), view.into_iter().count());
    map.retain(|_, _| true);
    let _ = map.try_retain(|_, _| true);
    map.clear();
    let _ = map.try_clear();
}

/// `copied` requires that the value can be copied, and the key compared, in a restartable section.
#[expect(dead_code, reason = "to be compiled")]
fn copied<K: Plain + Hash + Send + Sync + 'static, V: Copy + Send + Sync + 'static>(
    map: &RcuMap<K, V>,
    key: &K,
) -> Option<V> {
    map.copied(key)
}

/// `remove` clones the value, but never the key.
#[expect(dead_code, reason = "to be compiled")]
fn remove<K: Hash + Eq + Send + Sync + 'static, V: Clone + Send + Sync + 'static>(
    map: &RcuMap<K, V>,
    key: &K,
) -> Option<V> {
    map.try_remove(key).ok()?;
    map.remove_if(key, |_, _| true);
    map.remove(key)
}
