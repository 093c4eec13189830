//! Maps made from, and compared with, collections of entries.

use super::{MapOptions, RcuMap};
use crate::domain::Domain;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

impl<K, V, S> Default for RcuMap<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Default,
{
    /// A map of the process's common domain, [`Domain::global`].
    fn default() -> Self {
        Self::with_hasher(Domain::global(), S::default())
    }
}

impl<K, V, S> FromIterator<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    /// A map of the process's common domain, [`Domain::global`].
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut map = Self::default();
        map.extend(entries);
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for RcuMap<K, V, RandomState>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// A map of the process's common domain, [`Domain::global`].
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K, V, S> Extend<(K, V)> for &RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        let entries = entries.into_iter();
        // If the map is in use, some of the keys may be present: assume half of them, as `std` does.
        let least = entries.size_hint().0;
        self.reserve(if self.is_empty() { least } else { least.div_ceil(2) });
        for (key, value) in entries {
            self.set(key, value);
        }
    }
}

impl<K, V, S> Extend<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        (&*self).extend(entries);
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for &RcuMap<K, V, S>
where
    K: Hash + Eq + Copy + Send + Sync + 'static,
    V: Copy + Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<T: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: T) {
        self.extend(entries.into_iter().map(|(&key, &value)| (key, value)));
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Copy + Send + Sync + 'static,
    V: Copy + Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<T: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: T) {
        (&*self).extend(entries);
    }
}

impl<K, V, S> Clone for RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    /// A map of the same domain with clones of the entries that iteration sees.
    fn clone(&self) -> Self {
        let options = MapOptions::new().shards(self.shards.count()).capacity(self.len());
        let mut clone = Self::with_options(self.domain(), options, self.hasher().clone());
        clone.extend(self.pin().iter().map(|(key, value)| (key.clone(), value.clone())));
        clone
    }
}

impl<K, V, S> PartialEq for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Whether the entries are equal. Of little use while others write.
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.pin(), other.pin());
        one.len() == other.len() && one.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<K, V, S> Eq for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Eq + Send + Sync + 'static,
    S: BuildHasher,
{
}

impl<K, V, S> fmt::Debug for RcuMap<K, V, S>
where
    K: fmt::Debug + Send + Sync + 'static,
    V: fmt::Debug + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}
