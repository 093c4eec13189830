//! Inserting and changing entries. `remove.rs` removes them.

use super::alter::{Admission, InAnyCase, Keyed, Lent, Owned, Present, WithinLimits};
use super::{Entry, RcuMap};
use crate::garbage::Full;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// What a caller wants to become of a key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<V> {
    /// Leave it as it is, present or absent.
    Keep,
    /// Set its value to this one.
    Set(V),
    /// Remove it, if it is present.
    Remove,
}

/// What became of a key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changed.
    Kept,
    /// There was no entry, and there is one now.
    Inserted,
    /// The entry has another value now.
    Replaced,
    /// The entry was removed.
    Removed,
}

/// # Inserting and changing
///
/// These methods never fail. At the domain's limits they do what [`Options::at_limit`](crate::Options::at_limit)
/// says, and exceed the limits if there is no room even then. Methods that begin with `try_` refuse instead.
impl<K, V, S> RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of `key`, and returns a clone of the value that was there. The old entry itself, key and value,
    /// is freed after a grace period, because readers may still use it. [`set`](Self::set) and
    /// [`Pinned::insert`](super::Pinned::insert) clone nothing.
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        let Ok(old) = self.insert_by::<InAnyCase>(key, value);
        old
    }

    /// As [`insert`](Self::insert), within the domain's limits.
    ///
    /// # Errors
    /// If the domain is at its limits and its policy refuses. The map is then unchanged.
    pub fn try_insert(&self, key: K, value: V) -> Result<Option<V>, Full> {
        self.insert_by::<WithinLimits>(key, value)
    }

    /// Sets the value of `key`. Returns whether there was an entry, and clones nothing.
    pub fn set(&self, key: K, value: V) -> bool {
        self.compute(key, |_| Decision::Set(value)) == Effect::Replaced
    }

    /// As [`set`](Self::set), within the domain's limits.
    ///
    /// # Errors
    /// As for [`try_insert`](Self::try_insert).
    pub fn try_set(&self, key: K, value: V) -> Result<bool, Full> {
        Ok(self.try_compute(key, |_| Decision::Set(value))? == Effect::Replaced)
    }

    /// Sets the value of `key` to what `f` makes of it. Returns false if there is no entry.
    pub fn update<Q: Hash + Eq + ?Sized>(&self, key: &Q, f: impl FnOnce(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        let Ok(effect) = self.compute_by::<InAnyCase, _>(Present(key), changed_by(f));
        effect == Effect::Replaced
    }

    /// As [`update`](Self::update), within the domain's limits.
    ///
    /// # Errors
    /// As for [`try_insert`](Self::try_insert); `f` has not run.
    pub fn try_update<Q: Hash + Eq + ?Sized>(&self, key: &Q, f: impl FnOnce(&V) -> V) -> Result<bool, Full>
    where
        K: Borrow<Q>,
    {
        Ok(self.compute_by::<WithinLimits, _>(Present(key), changed_by(f))? == Effect::Replaced)
    }

    /// Lets `decide` choose, by its value, what becomes of the entry of `key`. No other writer comes in between.
    /// `decide` runs at most once, under the lock of the key's shard.
    pub fn compute(&self, key: K, decide: impl FnOnce(Option<&V>) -> Decision<V>) -> Effect {
        let Ok(effect) = self.compute_by::<InAnyCase, _>(Owned(key), decide);
        effect
    }

    /// As [`compute`](Self::compute), within the domain's limits.
    ///
    /// # Errors
    /// As for [`try_insert`](Self::try_insert); `decide` has not run.
    pub fn try_compute(
        &self,
        key: K,
        decide: impl FnOnce(Option<&V>) -> Decision<V>,
    ) -> Result<Effect, Full> {
        self.compute_by::<WithinLimits, _>(Owned(key), decide)
    }

    /// As [`compute`](Self::compute), with a key that is lent: a key to store is made only if it is stored.
    ///
    /// ```
    /// # use reprieve_rcu::{RcuMap, map::{Decision, Effect}};
    /// let seats: RcuMap<String, u32> = RcuMap::from([("front".to_owned(), 1)]);
    /// let take = |seats: Option<&u32>| match seats {
    ///     Some(0) | None => Decision::Keep,
    ///     Some(n) => Decision::Set(n - 1),
    /// };
    /// assert_eq!(seats.compute_ref("front", take), Effect::Replaced);
    /// assert_eq!(seats.compute_ref("front", take), Effect::Kept);
    /// assert_eq!(seats.compute_ref("back", take), Effect::Kept); // no String was made
    /// ```
    pub fn compute_ref<Q>(&self, key: &Q, decide: impl FnOnce(Option<&V>) -> Decision<V>) -> Effect
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let Ok(effect) = self.compute_by::<InAnyCase, _>(Lent(key), decide);
        effect
    }

    /// As [`compute_ref`](Self::compute_ref), within the domain's limits.
    ///
    /// # Errors
    /// As for [`try_compute`](Self::try_compute).
    pub fn try_compute_ref<Q>(
        &self,
        key: &Q,
        decide: impl FnOnce(Option<&V>) -> Decision<V>,
    ) -> Result<Effect, Full>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.compute_by::<WithinLimits, _>(Lent(key), decide)
    }

    /// A clone of the value of `key`; if there is none, what `f` returns is inserted first.
    ///
    /// `f` runs before the lock is taken. It may use the map freely, and holds up no other writer. If another thread
    /// inserts the key meanwhile, that thread's value is returned, and that of `f` is dropped. To run `f` only if its
    /// value is used, write `map.entry(key).or_insert_with(f)`.
    ///
    /// # Panics
    /// As for [`pin`](Self::pin).
    pub fn get_or_insert_with(&self, key: K, f: impl FnOnce() -> V) -> V {
        self.get_or_insert_by(Owned(key), f)
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a key that is lent: a key to store is made only if
    /// it is stored.
    ///
    /// # Panics
    /// As for [`pin`](Self::pin).
    pub fn get_or_insert_with_ref<Q>(&self, key: &Q, f: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.get_or_insert_by(Lent(key), f)
    }

    /// The entry of `key`, to be changed in one step.
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        Entry::new(self, Owned(key))
    }

    /// As [`entry`](Self::entry), with a key that is lent: a key to store is made only if it is stored.
    pub fn entry_ref<'m, 'q, Q>(&'m self, key: &'q Q) -> Entry<'m, K, V, S, Lent<'q, Q>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        Entry::new(self, Lent(key))
    }

    fn insert_by<P: Admission>(&self, key: K, value: V) -> Result<Option<V>, P::Refusal> {
        // Out here, so that neither is dropped under the lock if the clone panics.
        let (mut old, mut value) = (None, Some(value));
        self.compute_by::<P, _>(Owned(key), |present| {
            old = present.cloned();
            value.take().map_or(Decision::Keep, Decision::Set)
        })?;
        Ok(old)
    }

    fn get_or_insert_by<A: Keyed<K>>(&self, key: A, f: impl FnOnce() -> V) -> V
    where
        K: Borrow<A::Lookup>,
    {
        if let Some(value) = self.get(key.lookup(), &self.domain().lock()) {
            return value.clone();
        }
        // Outside of the section: this may have to wait for room, and must not wait for this very thread.
        let (mut result, mut made) = (None, Some(f()));
        let Ok(_) = self.compute_by::<InAnyCase, _>(key, |present| {
            result = present.or(made.as_ref()).cloned();
            let absent = if present.is_none() { made.take() } else { None };
            absent.map_or(Decision::Keep, Decision::Set)
        });
        result.expect("a value that was present or made")
    }

    pub(super) fn compute_by<P: Admission, A: Keyed<K>>(
        &self,
        key: A,
        decide: impl FnOnce(Option<&V>) -> Decision<V>,
    ) -> Result<Effect, P::Refusal>
    where
        K: Borrow<A::Lookup>,
    {
        Ok(self.alter::<P, _>(key, |entry| decide(entry.map(|(_, value)| value)))?.effect)
    }
}

/// Sets the value, if there is one, to what `f` makes of it.
fn changed_by<V>(f: impl FnOnce(&V) -> V) -> impl FnOnce(Option<&V>) -> Decision<V> {
    |value| value.map_or(Decision::Keep, |value| Decision::Set(f(value)))
}
