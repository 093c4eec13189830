//! Removing entries: one, some, or all. Only results are cloned, so that otherwise neither keys nor values have to be
//! `Clone`.

use super::RcuMap;
use super::alter::{Admission, InAnyCase, WithinLimits, hand_over};
use super::limbo::entry_bytes;
use crate::garbage::Full;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// # Removing one entry
///
/// The entry itself is freed after a grace period, because readers may still use it. At the domain's limits these
/// methods do as those that insert.
impl<K, V, S> RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes the entry of `key`, and returns a clone of its value. [`discard`](Self::discard) and
    /// [`Pinned::remove`](super::Pinned::remove) clone nothing.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.remove_if(key, |_, _| true)
    }

    /// As [`remove`](Self::remove), within the domain's limits.
    ///
    /// # Errors
    /// If the domain is at its limits and its policy refuses. The map is then unchanged.
    pub fn try_remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Result<Option<V>, Full>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.remove_by::<WithinLimits, Q>(key, |_, _| true)
    }

    /// Removes the entry of `key`, and returns clones of the key and the value.
    pub fn remove_entry<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q> + Clone,
        V: Clone,
    {
        // Out here, so that the key is not dropped under the lock if the clone of the value panics.
        let (mut key_copy, mut value_copy) = (None, None);
        let Ok(_) = self.take_out::<InAnyCase, Q>(key, |(key, value)| {
            key_copy = Some(key.clone());
            value_copy = Some(value.clone());
            true
        });
        key_copy.zip(value_copy)
    }

    /// Removes the entry of `key` if `doomed` says so, and returns a clone of its value. `doomed` runs at most once,
    /// under the lock of the key's shard.
    pub fn remove_if<Q: Hash + Eq + ?Sized>(&self, key: &Q, doomed: impl FnOnce(&K, &V) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let Ok(value) = self.remove_by::<InAnyCase, Q>(key, doomed);
        value
    }

    /// Removes the entry of `key`. Returns whether there was one, and clones nothing.
    pub fn discard<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let Ok(entry) = self.take_out::<InAnyCase, Q>(key, |_| true);
        entry.is_some()
    }

    /// As [`discard`](Self::discard), within the domain's limits.
    ///
    /// # Errors
    /// As for [`try_remove`](Self::try_remove).
    pub fn try_discard<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Result<bool, Full>
    where
        K: Borrow<Q>,
    {
        Ok(self.take_out::<WithinLimits, Q>(key, |_| true)?.is_some())
    }

    /// The clone comes first, so that the map is unchanged if it panics.
    fn remove_by<P: Admission, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        doomed: impl FnOnce(&K, &V) -> bool,
    ) -> Result<Option<V>, P::Refusal>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let mut copy = None;
        self.take_out::<P, Q>(key, |(key, value)| {
            copy = doomed(key, value).then(|| value.clone());
            copy.is_some()
        })?;
        Ok(copy)
    }
}

/// # Removing many entries
///
/// Goes from shard to shard, and may miss an entry that others insert meanwhile.
impl<K, V, S> RcuMap<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Removes the entries for which `keep` is false.
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        let Ok(()) = self.retain_by::<InAnyCase>(keep);
    }

    /// As [`retain`](Self::retain), within the domain's limits. A shard needs room for all that it might lose.
    ///
    /// # Errors
    /// If the domain is at its limits and its policy refuses. Later shards are then unchanged.
    pub fn try_retain(&self, keep: impl FnMut(&K, &V) -> bool) -> Result<(), Full> {
        self.retain_by::<WithinLimits>(keep)
    }

    /// Removes all entries.
    pub fn clear(&self) {
        let Ok(()) = self.clear_by::<InAnyCase>();
    }

    /// As [`clear`](Self::clear), within the domain's limits.
    ///
    /// # Errors
    /// As for [`try_retain`](Self::try_retain).
    pub fn try_clear(&self) -> Result<(), Full> {
        self.clear_by::<WithinLimits>()
    }

    fn retain_by<P: Admission>(&self, mut keep: impl FnMut(&K, &V) -> bool) -> Result<(), P::Refusal> {
        (0..self.shards.count()).try_for_each(|index| {
            let locked = self.lock_with_room::<P, _>(index, |shard| match shard.len() {
                0 => None,
                len => Some((len * entry_bytes::<K, V>(), ())),
            })?;
            let Some((mut shard, room, ())) = locked else { return Ok(()) };
            let doomed: Vec<_> =
                shard.full().filter(|(_, (k, v))| !keep(k, v)).map(|(slot, _)| slot).collect();
            let garbage = (!doomed.is_empty()).then(|| shard.remove_all(doomed));
            drop(shard);
            hand_over(room, garbage);
            Ok(())
        })
    }

    fn clear_by<P: Admission>(&self) -> Result<(), P::Refusal> {
        (0..self.shards.count()).try_for_each(|index| {
            let locked = self.lock_with_room::<P, _>(index, |shard| match shard.table.bytes() {
                0 => None,
                bytes => Some((bytes, ())),
            })?;
            if let Some((shard, room, ())) = locked {
                hand_over(room, shard.clear());
            }
            Ok(())
        })
    }
}
