//! One key's entry, to be changed in one step.

use super::{Decision, Effect, RcuMap};
use crate::garbage::Full;
use std::hash::{BuildHasher, Hash};

/// An operation on one key that is made up first, and then done under the lock by one of the methods that
/// begin with `or_`.
///
/// ```
/// # use reprieve_rcu::{Domain, RcuMap};
/// let domain = Domain::default();
/// let counts = RcuMap::new(&domain);
/// for word in ["to", "be", "or", "not", "to", "be"] {
///     counts.entry(word).and_modify(|n| n + 1).or_insert(1).unwrap();
/// }
/// assert_eq!(counts.get("be", &domain.lock()), Some(&2));
/// ```
#[must_use = "nothing is done before one of the methods `or_...` is called"]
pub struct Entry<'m, K, V, S, M = fn(&V) -> V>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    map: &'m RcuMap<K, V, S>,
    key: K,
    modify: Option<M>,
}

impl<'m, K, V, S> Entry<'m, K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(map: &'m RcuMap<K, V, S>, key: K) -> Self {
        Self { map, key, modify: None }
    }

    /// If there is an entry, sets its value to what `f` makes of it.
    pub fn and_modify<M: FnOnce(&V) -> V>(self, f: M) -> Entry<'m, K, V, S, M> {
        Entry { map: self.map, key: self.key, modify: Some(f) }
    }
}

impl<K, V, S, M> Entry<'_, K, V, S, M>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
    M: FnOnce(&V) -> V,
{
    /// If there is no entry, inserts `value`.
    ///
    /// # Errors
    /// When the domain is at its limits and its policy refuses; the map is as it was.
    pub fn or_insert(self, value: V) -> Result<Effect, Full> {
        self.or_insert_with(|| value)
    }

    /// If there is no entry, inserts what `f` returns.
    ///
    /// # Errors
    /// As for `or_insert`; neither function has run.
    pub fn or_insert_with(self, f: impl FnOnce() -> V) -> Result<Effect, Full> {
        self.apply(|| Decision::Set(f()))
    }

    /// If there is no entry, does nothing.
    ///
    /// # Errors
    /// As for `or_insert_with`.
    pub fn or_nothing(self) -> Result<Effect, Full> {
        self.apply(|| Decision::Keep)
    }

    fn apply(self, absent: impl FnOnce() -> Decision<V>) -> Result<Effect, Full> {
        let Self { map, key, mut modify } = self;
        // The one that is not called is dropped here, with what it holds, and not under the shard's lock.
        let mut absent = Some(absent);
        map.compute(key, |value| match value {
            None => absent.take().map_or(Decision::Keep, |absent| absent()),
            Some(value) => modify.take().map_or(Decision::Keep, |modify| Decision::Set(modify(value))),
        })
    }
}
