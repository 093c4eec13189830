//! A shard's entries, copied into a new table.

use super::super::table::{Table, log2_for};
use super::Locked;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

/// The most groups that a new table has beyond its home groups, and their share.
const TAIL: usize = 15;
const TAIL_SHARE: usize = 8;
/// A rebuild is due when an entry would be placed further from its home than this many groups, and also further than twice
/// the farthest entry of a table just rebuilt. The second condition keeps colliding keys from causing a rebuild each time.
const REACH: usize = 15;

impl<K, V> Locked<'_, K, V> {
    /// Makes a table with a copy of every entry except that of slot `replaced`, and finds a place for one more entry
    /// with `hash`, if given. Changes nothing in the shard.
    ///
    /// The table is the last of `tables`; any before it turned out too small. The caller drops them after the lock is
    /// released, because copies of entries run the user's destructors. It does so also if a clone panics.
    pub(in super::super) fn rebuild(
        &self,
        hasher: &impl BuildHasher,
        hash: Option<u64>,
        replaced: Option<usize>,
        tables: &mut Vec<Rebuilt<K, V>>,
    ) -> Option<usize>
    where
        K: Hash + Clone,
        V: Clone,
    {
        let live = self.len() + usize::from(hash.is_some()) - usize::from(replaced.is_some());
        // Leaves at least a quarter of the room free, so that the cost of rebuilding is spread over as many changes.
        let log2 = log2_for(live.saturating_mul(4).div_ceil(3)).max(self.state.least_log2);
        let mut tail = ((1 << log2) / TAIL_SHARE).min(TAIL);
        loop {
            tables.push(Rebuilt { table: Table::new(log2, tail), len: 0, key: None });
            let new = tables.last_mut().expect("pushed above");
            if let Ok(slot) = self.copy_into(new, hasher, hash, replaced) {
                return slot;
            }
            // There were too many keys in the last home groups. In the end the tail alone has room for all.
            tail = 2 * tail + 1;
        }
    }

    /// Copies the entries into `new`. Fails if a key finds no place.
    fn copy_into(
        &self,
        new: &mut Rebuilt<K, V>,
        hasher: &impl BuildHasher,
        hash: Option<u64>,
        replaced: Option<usize>,
    ) -> Result<Option<usize>, NoPlace>
    where
        K: Hash + Clone,
        V: Clone,
    {
        let table = new.table;
        let mut farthest = 0;
        let mut place = |hash| {
            // SAFETY: nobody else has the new table.
            let (slot, _) = unsafe { table.place(hash, None) }.ok_or(NoPlace)?;
            farthest = farthest.max(table.distance(slot, hash));
            Ok(slot)
        };
        for (_, (key, value)) in self.full().filter(|&(slot, _)| Some(slot) != replaced) {
            let hash = hasher.hash_one(key);
            let slot = place(hash)?;
            // Kept in `new` meanwhile, because the clone of the value may panic.
            new.key = Some(key.clone());
            let value = value.clone();
            let key = new.key.take().expect("cloned above");
            // SAFETY: as above, and the slot is the last that `place` returned.
            unsafe { table.fill(slot, hash, (key, value)) };
            new.len += 1;
        }
        let slot = hash.map(place).transpose()?;
        // SAFETY: as above.
        unsafe { table.set_reach(REACH.max(2 * farthest)) };
        Ok(slot)
    }
}

/// The table is too small for the keys that it must hold.
struct NoPlace;

/// A table that nobody else has seen, and how many entries it holds.
pub(in super::super) struct Rebuilt<K, V> {
    table: Table<K, V>,
    len: usize,
    /// A key whose value is being cloned.
    key: Option<K>,
}

impl<K, V> Rebuilt<K, V> {
    /// Puts the last entry into its place.
    pub(in super::super) fn fill(&mut self, slot: usize, hash: u64, entry: (K, V)) -> NonNull<(K, V)> {
        self.len += 1;
        // SAFETY: `rebuild` found the slot, as its last.
        unsafe {
            self.table.fill(slot, hash, entry);
            self.table.entry(slot)
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    pub(super) fn into_table(self) -> Table<K, V> {
        std::mem::ManuallyDrop::new(self).table
    }
}

impl<K, V> Drop for Rebuilt<K, V> {
    fn drop(&mut self) {
        // SAFETY: nobody has seen the table.
        unsafe { self.table.free() };
    }
}
