//! What changes a map. Every operation on one key is an [`RcuMap::compute`].

use super::limbo::{Garbage, entry_bytes};
use super::shard::Locked;
use super::{Entry, MapOptions, RcuMap};
use crate::domain::Domain;
use crate::garbage::Full;
use crate::room::Room;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// What is to become of a key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<V> {
    /// Nothing: it stays, or stays absent.
    Keep,
    /// It holds this value.
    Set(V),
    /// It is removed, if there is one.
    Remove,
}

/// What became of a key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Kept,
    /// There was none, and is one now.
    Inserted,
    /// It has another value.
    Replaced,
    /// It is gone.
    Removed,
}

/// The key of an operation: given away, or lent.
enum Key<'q, K, Q: ?Sized> {
    Owned(K),
    Lent(&'q Q),
}

impl<K: Borrow<Q>, Q: ?Sized> Key<'_, K, Q> {
    fn get(&self) -> &Q {
        match self {
            Self::Owned(key) => key.borrow(),
            Self::Lent(key) => key,
        }
    }

    /// The key to store, if need be a copy of the one that is stored.
    fn into_owned(self, present: Option<&K>) -> K
    where
        K: Clone,
    {
        match self {
            Self::Owned(key) => key,
            Self::Lent(_) => present.expect("lent keys come with a present entry").clone(),
        }
    }
}

/// A shard's lock, and room for what its holder may make garbage.
type LockedWithRoom<'m, K, V> = (Locked<'m, K, V>, Room<'m>);

/// What an operation may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    Remove,
    Update,
    Anything,
}

impl<K, V, S> RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of `key`. True if there was an entry, which is then freed after a grace period, key and
    /// value.
    ///
    /// # Errors
    /// When the domain is at its limits and its policy refuses; the map is as it was.
    pub fn insert(&self, key: K, value: V) -> Result<bool, Full> {
        Ok(self.compute(key, |_| Decision::Set(value))? == Effect::Replaced)
    }

    /// Removes the entry of `key`, which is freed after a grace period. False if there was none.
    ///
    /// # Errors
    /// As for `insert`.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Result<bool, Full>
    where
        K: Borrow<Q>,
    {
        Ok(self.alter(Key::Lent(key), May::Remove, |_| Decision::Remove)? == Effect::Removed)
    }

    /// Sets the value of `key` to what `f` makes of it. False if there is no entry.
    ///
    /// # Errors
    /// As for `insert`; `f` has not run.
    pub fn update<Q: Hash + Eq + ?Sized>(&self, key: &Q, f: impl FnOnce(&V) -> V) -> Result<bool, Full>
    where
        K: Borrow<Q>,
    {
        let decide = |value: Option<&V>| value.map_or(Decision::Keep, |value| Decision::Set(f(value)));
        Ok(self.alter(Key::Lent(key), May::Update, decide)? == Effect::Replaced)
    }

    /// Decides by its value what becomes of the entry of `key`; no other writer comes between. `decide` runs
    /// at most once, under the lock of the key's shard.
    ///
    /// # Errors
    /// As for `insert`; `decide` has not run.
    pub fn compute(&self, key: K, decide: impl FnOnce(Option<&V>) -> Decision<V>) -> Result<Effect, Full> {
        self.alter::<K>(Key::Owned(key), May::Anything, decide)
    }

    /// The entry of `key`, to be changed in one step.
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        Entry::new(self, key)
    }

    /// Does what every operation on one key does. Room for the garbage is reserved outside of the lock, so
    /// the lock is taken again when more turns out to be needed.
    fn alter<Q: Hash + Eq + ?Sized>(
        &self,
        key: Key<'_, K, Q>,
        may: May,
        decide: impl FnOnce(Option<&V>) -> Decision<V>,
    ) -> Result<Effect, Full>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher().hash_one(key.get());
        let mut room = None;
        loop {
            let shard = self.shards.lock(hash);
            let present = shard.find(hash, key.get()).map(|(slot, _)| slot);
            if present.is_none() && may != May::Anything {
                return Ok(Effect::Kept);
            }
            let place = if may == May::Remove { present } else { shard.place(hash, present) };
            let bytes = match (place, present) {
                (None, _) => shard.table.bytes(),
                (Some(_), Some(_)) => entry_bytes::<K, V>(),
                (Some(_), None) => 0,
            };
            if bytes > room.as_ref().map_or(0, Room::bytes) {
                drop((shard, room.take()));
                room = Some(self.domain().reclaim().room(bytes)?);
                continue;
            }
            let (effect, garbage) = self.decided(key, hash, decide, [present, place], shard);
            if let (Some(room), Some(garbage)) = (room, garbage) {
                // SAFETY: the garbage was made unreachable under the lock.
                room.accept(unsafe { garbage.retired() });
            }
            return Ok(effect);
        }
    }

    /// Decides, and changes the shard: what is then garbage. The user's code comes first. The shard is the last argument,
    /// which is dropped first: a key that is not stored is dropped after the lock is released.
    fn decided<Q: ?Sized>(
        &self,
        key: Key<'_, K, Q>,
        hash: u64,
        decide: impl FnOnce(Option<&V>) -> Decision<V>,
        [present, place]: [Option<usize>; 2],
        mut shard: Locked<'_, K, V>,
    ) -> (Effect, Option<Garbage<K, V>>)
    where
        K: Borrow<Q>,
    {
        let old = present.map(|slot| shard.entry(slot));
        let entry = match (decide(old.map(|(_, value)| value)), present) {
            (Decision::Keep, _) | (Decision::Remove, None) => return (Effect::Kept, None),
            (Decision::Remove, Some(slot)) => return (Effect::Removed, Some(shard.remove(slot))),
            (Decision::Set(value), _) => (key.into_owned(old.map(|(key, _)| key)), value),
        };
        let effect = if present.is_some() { Effect::Replaced } else { Effect::Inserted };
        let Some(place) = place else {
            let (mut new, place) = shard.rebuild(self.hasher(), hash, present);
            new.fill(place, hash, entry);
            return (effect, shard.replace(new));
        };
        // The new entry first: a reader that finds the old one removed finds the new one further on.
        shard.fill(place, hash, entry);
        (effect, present.map(|slot| shard.remove(slot)))
    }

    /// Removes the entries for which `keep` is false. Goes from shard to shard: an entry that others insert
    /// meanwhile may stay unseen.
    ///
    /// # Errors
    /// When the domain is at its limits and its policy refuses; shards that come later are as they were. Room
    /// is needed for what a shard could lose at most.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) -> Result<(), Full> {
        (0..self.shards.count()).try_for_each(|index| {
            let Some((mut shard, room)) = self.lock_with_room(index, |s| s.len() * entry_bytes::<K, V>())?
            else {
                return Ok(());
            };
            let doomed: Vec<_> =
                shard.full().filter(|(_, (k, v))| !keep(k, v)).map(|(slot, _)| slot).collect();
            if !doomed.is_empty() {
                let garbage = shard.remove_all(doomed);
                drop(shard);
                // SAFETY: the entries were made unreachable under the lock.
                room.accept(unsafe { garbage.retired() });
            }
            Ok(())
        })
    }

    /// Removes all entries, shard by shard.
    ///
    /// # Errors
    /// As for `retain`.
    pub fn clear(&self) -> Result<(), Full> {
        (0..self.shards.count()).try_for_each(|index| {
            if let Some((shard, room)) = self.lock_with_room(index, |s| s.table.bytes())?
                && let Some(garbage) = shard.clear()
            {
                // SAFETY: the table was made unreachable under the lock.
                room.accept(unsafe { garbage.retired() });
            }
            Ok(())
        })
    }

    /// A shard's lock and room for as many bytes of garbage as `bytes` says; none where that is 0.
    fn lock_with_room(
        &self,
        index: usize,
        bytes: impl Fn(&Locked<'_, K, V>) -> usize,
    ) -> Result<Option<LockedWithRoom<'_, K, V>>, Full> {
        let mut room: Option<Room<'_>> = None;
        loop {
            let shard = self.shards.lock_at(index);
            let bytes = bytes(&shard);
            match room {
                _ if bytes == 0 => return Ok(None),
                Some(room) if room.bytes() >= bytes => return Ok(Some((shard, room))),
                _ => drop((shard, room)),
            }
            room = Some(self.domain().reclaim().room(bytes)?);
        }
    }
}

impl<K, V, S> Extend<(K, V)> for &RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts all.
    ///
    /// # Panics
    /// When the domain is at its limits and its policy refuses.
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        for (key, value) in entries {
            self.insert(key, value).unwrap_or_else(|full| panic!("{full}"));
        }
    }
}

impl<K, V, S> Extend<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts all.
    ///
    /// # Panics
    /// When the domain is at its limits and its policy refuses.
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        (&*self).extend(entries);
    }
}

impl<K, V, S> FromIterator<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    /// A map of the process's common domain.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let entries = entries.into_iter();
        let options = MapOptions::new().capacity(entries.size_hint().0);
        let mut map = Self::with_options(Domain::global(), options, S::default());
        map.extend(entries);
        map
    }
}
