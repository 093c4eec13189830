//! A map together with a section of its domain.

use super::alter::{InAnyCase, Keyed, Lent, Owned, Present};
use super::{Decision, Iter, Keys, RcuMap, Values};
use crate::guard::Guard;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ptr::NonNull;

/// A map together with a section of its domain, made by [`RcuMap::pin`]. What its methods find, insert, replace or
/// remove can be used for as long as the view is borrowed.
///
/// ```
/// use reprieve_rcu::RcuMap;
///
/// let capitals = RcuMap::from([("France", "Paris".to_owned()), ("Brazil", "Rio de Janeiro".to_owned())]);
/// let capitals = capitals.pin();
/// let old = capitals.insert("Brazil", "Brasília".to_owned());
/// assert_eq!(old.map(String::as_str), Some("Rio de Janeiro")); // not cloned
/// assert_eq!(capitals.get("Brazil").unwrap(), "Brasília");
/// for (country, capital) in &capitals {
///     println!("{country}: {capital}");
/// }
/// ```
///
/// # Notes
/// - A view is a section that lasts. Keep it for an operation or a few, and not across blocking calls. The
///   [guide](crate::guide) explains what a section does to writers.
/// - What is replaced or removed through a view is freed after the view is dropped: by the next call that retires
///   something, by [`Domain::reclaim_now`](crate::Domain::reclaim_now), or by the reclaimer thread. At the domain's
///   limits the view does not wait for itself, but exceeds them.
/// - A view stays on its thread.
///
/// A reference does not outlive its view:
/// ```compile_fail
/// # use reprieve_rcu::RcuMap;
/// let map = RcuMap::from([(1, String::from("one"))]);
/// let one = map.pin().get(&1);
/// println!("{one:?}");
/// ```
/// ```compile_fail
/// # use reprieve_rcu::RcuMap;
/// let map = RcuMap::from([(1, String::from("one"))]);
/// let view = map.pin();
/// let old = view.insert(1, String::from("uno"));
/// drop(view);
/// println!("{old:?}");
/// ```
/// Nor does an iterator:
/// ```compile_fail
/// # use reprieve_rcu::RcuMap;
/// let map = RcuMap::from([(1, String::from("one"))]);
/// let view = map.pin();
/// let mut iter = view.iter();
/// drop(view);
/// iter.next();
/// ```
/// A view does not outlive its map, even if it is leaked:
/// ```compile_fail
/// # use reprieve_rcu::RcuMap;
/// let map = RcuMap::from([(1, String::from("one"))]);
/// let view = Box::leak(Box::new(map.pin()));
/// let one = view.get(&1);
/// drop(map);
/// println!("{one:?}");
/// ```
/// It can neither be sent to another thread nor be used by one:
/// ```compile_fail
/// # use reprieve_rcu::RcuMap;
/// fn send<T: Send>(_: T) {}
/// let map: RcuMap<u32, u32> = RcuMap::default();
/// send(map.pin());
/// ```
/// ```compile_fail
/// # use reprieve_rcu::RcuMap;
/// fn send<T: Send>(_: T) {}
/// let map: RcuMap<u32, u32> = RcuMap::default();
/// send(&map.pin());
/// ```
#[must_use = "the section ends when the view is dropped"]
pub struct Pinned<'m, K, V, S = RandomState>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    map: &'m RcuMap<K, V, S>,
    /// Of the map's domain.
    guard: Guard<'m>,
}

impl<K, V, S> RcuMap<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Enters a section of the map's domain, as [`Domain::lock`](crate::Domain::lock) does, for as long as the view
    /// lasts. Views may nest.
    ///
    /// # Panics
    /// Beyond 4,095 nested sections, or when the domain has as many readers as it may.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned { map: self, guard: self.domain().lock() }
    }
}

impl<'m, K, V, S> Pinned<'m, K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// The map.
    pub fn map(&self) -> &'m RcuMap<K, V, S> {
        self.map
    }

    /// The view's section, to read other things in the same domain.
    pub fn guard(&self) -> &Guard<'m> {
        &self.guard
    }

    /// The number of entries; see [`RcuMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Iterates over all entries; see [`RcuMap::iter`].
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.map.iter(&self.guard)
    }

    /// Iterates over all keys, as `iter` does.
    pub fn keys(&self) -> Keys<'_, K, V> {
        self.map.keys(&self.guard)
    }

    /// Iterates over all values, as `iter` does.
    pub fn values(&self) -> Values<'_, K, V> {
        self.map.values(&self.guard)
    }

    /// An entry, for as long as the view is borrowed.
    ///
    /// # Safety
    /// The entry was in the map at some moment since the view was made.
    unsafe fn entry(&self, entry: NonNull<(K, V)>) -> (&K, &V) {
        // SAFETY: whatever makes the entry unreachable comes after the view was made, and unreachable entries are not
        // freed before the view's section ends. The section ends when the view is dropped, which the borrow rules
        // out, or never if the view is leaked.
        let (key, value) = unsafe { entry.as_ref() };
        (key, value)
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// The value of `key`. Wait-free.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// The entry of `key`. Wait-free.
    #[inline]
    pub fn get_key_value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        // SAFETY: the view is a section of the map's domain, for as long as it is borrowed.
        unsafe { self.map.look_up(key) }
    }

    /// Whether there is an entry of `key`. Wait-free.
    #[inline]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).is_some()
    }

    /// Removes the entry of `key`, and returns the value that it had.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes the entry of `key`, and returns it.
    pub fn remove_entry<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.remove_if(key, |_, _| true)
    }

    /// Removes the entry of `key` if `doomed` says so, and returns it. `doomed` runs at most once, under the lock of
    /// the key's shard.
    pub fn remove_if<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        doomed: impl FnOnce(&K, &V) -> bool,
    ) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let Ok(entry) = self.map.take_out::<InAnyCase, Q>(key, |(key, value)| doomed(key, value));
        // SAFETY: it was in the map until the call above.
        entry.map(|entry| unsafe { self.entry(entry) })
    }
}

/// # Inserting and changing
///
/// These work as the map's own methods of the same names, but clone nothing for the result.
impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of `key`, and returns the value that was there.
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        let Ok(altered) = self.map.alter::<InAnyCase, _>(Owned(key), |_| Decision::Set(value));
        // SAFETY: it was in the map until the call above.
        altered.old.map(|entry| unsafe { self.entry(entry) }.1)
    }

    /// Sets the value of `key` to what `f` makes of it, and returns the new value. `f` runs under the lock of the
    /// key's shard.
    pub fn update<Q: Hash + Eq + ?Sized>(&self, key: &Q, f: impl FnOnce(&V) -> V) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let Ok(altered) = self.map.alter::<InAnyCase, _>(Present(key), |entry| {
            entry.map_or(Decision::Keep, |(_, value)| Decision::Set(f(value)))
        });
        // SAFETY: it was in the map at the end of the call above.
        altered.now.map(|entry| unsafe { self.entry(entry) }.1)
    }

    /// The value of `key`; if there is none, `value` is inserted first.
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// The value of `key`; if there is none, what `f` returns is inserted first.
    ///
    /// `f` runs before the lock is taken. It may use the map freely, and holds up no other writer. If another thread
    /// inserts the key meanwhile, that thread's value is returned, and that of `f` is dropped. To run `f` only if its
    /// value is used, use [`RcuMap::entry`].
    pub fn get_or_insert_with(&self, key: K, f: impl FnOnce() -> V) -> &V {
        self.get_or_insert_by(Owned(key), f)
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a key that is lent: a key to store is made only if
    /// it is stored.
    pub fn get_or_insert_with_ref<Q>(&self, key: &Q, f: impl FnOnce() -> V) -> &V
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.get_or_insert_by(Lent(key), f)
    }

    fn get_or_insert_by<A: Keyed<K>>(&self, key: A, f: impl FnOnce() -> V) -> &V
    where
        K: Borrow<A::Lookup>,
    {
        if let Some(value) = self.get(key.lookup()) {
            return value;
        }
        // Out here, so that it is not dropped under the lock if it is not used.
        let mut made = Some(f());
        let Ok(altered) = self.map.alter::<InAnyCase, _>(key, |present| {
            let absent = if present.is_none() { made.take() } else { None };
            absent.map_or(Decision::Keep, Decision::Set)
        });
        let entry = altered.now.expect("an entry that was present or inserted");
        // SAFETY: it was in the map at the end of the call above.
        unsafe { self.entry(entry) }.1
    }
}

impl<'v, K, V, S> IntoIterator for &'v Pinned<'_, K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    type Item = (&'v K, &'v V);
    type IntoIter = Iter<'v, K, V>;
    fn into_iter(self) -> Iter<'v, K, V> {
        self.iter()
    }
}

impl<K, V, S> fmt::Debug for Pinned<'_, K, V, S>
where
    K: fmt::Debug + Send + Sync + 'static,
    V: fmt::Debug + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}
