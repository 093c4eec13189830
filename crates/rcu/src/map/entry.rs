//! One key's entry, changed in one step.

use super::alter::{InAnyCase, Keyed, Owned};
use super::{Decision, Effect, RcuMap};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// An operation on one key. It is first put together, and one of the methods that begin with `or_` then does it under
/// the lock.
///
/// ```
/// # use reprieve_rcu::RcuMap;
/// let counts: RcuMap<&str, u32> = RcuMap::default();
/// for word in ["to", "be", "or", "not", "to", "be"] {
///     counts.entry(word).and_modify(|n| n + 1).or_insert(1);
/// }
/// assert_eq!(counts.pin().get("be"), Some(&2));
/// ```
#[must_use = "nothing is done before one of the methods `or_...` is called"]
pub struct Entry<'m, K, V, S, A = Owned<K>, M = fn(&V) -> V>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    map: &'m RcuMap<K, V, S>,
    key: A,
    modify: Option<M>,
}

impl<'m, K, V, S, A> Entry<'m, K, V, S, A>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(map: &'m RcuMap<K, V, S>, key: A) -> Self {
        Self { map, key, modify: None }
    }

    /// If there is an entry, sets its value to what `f` makes of it.
    pub fn and_modify<M: FnOnce(&V) -> V>(self, f: M) -> Entry<'m, K, V, S, A, M> {
        Entry { map: self.map, key: self.key, modify: Some(f) }
    }
}

impl<K, V, S, A, M> Entry<'_, K, V, S, A, M>
where
    K: Hash + Eq + Clone + Borrow<A::Lookup> + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
    A: Keyed<K>,
    M: FnOnce(&V) -> V,
{
    /// If there is no entry, inserts `value`.
    pub fn or_insert(self, value: V) -> Effect {
        self.or_insert_with(|| value)
    }

    /// If there is no entry, inserts what `f` returns. `f` runs under the lock, and only if its value is used.
    /// [`RcuMap::get_or_insert_with`] runs it outside of the lock.
    pub fn or_insert_with(self, f: impl FnOnce() -> V) -> Effect {
        self.apply(|| Decision::Set(f()))
    }

    /// If there is no entry, inserts the default value.
    pub fn or_default(self) -> Effect
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// If there is no entry, does nothing.
    pub fn or_nothing(self) -> Effect {
        self.apply(|| Decision::Keep)
    }

    fn apply(self, absent: impl FnOnce() -> Decision<V>) -> Effect {
        let Self { map, key, mut modify } = self;
        // A closure that is not called is dropped here, with what it holds, and not under the shard's lock.
        let mut absent = Some(absent);
        let Ok(effect) = map.compute_by::<InAnyCase, _>(key, |value| match value {
            None => absent.take().map_or(Decision::Keep, |absent| absent()),
            Some(value) => modify.take().map_or(Decision::Keep, |modify| Decision::Set(modify(value))),
        });
        effect
    }
}
