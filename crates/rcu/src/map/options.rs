//! How large a map is made.

use super::RcuMap;
use super::alter::{InAnyCase, hand_over};
use super::shard::SHARDS_LIMIT;
use std::hash::{BuildHasher, Hash};

/// How many shards a map has, unless [`MapOptions::shards`] says otherwise.
const SHARDS: usize = 64;

/// Options of a map; see the methods.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    pub(super) capacity: usize,
    pub(super) shards: usize,
}

impl Default for MapOptions {
    fn default() -> Self {
        Self { capacity: 0, shards: SHARDS }
    }
}

impl MapOptions {
    /// The defaults, which each method states.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries fit before a shard is rebuilt. A shard allocates its memory at its first entry, and never has
    /// less later. Default 0.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = entries;
        self
    }

    /// How many shards there are, rounded up to a power of two, at most 65,536. With more shards each rebuild is
    /// shorter, and more writers can work at the same time. Each shard costs 136 bytes. Default 64.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards.clamp(1, SHARDS_LIMIT).next_power_of_two();
        self
    }
}

impl<K, V, S> RcuMap<K, V, S>
where
    K: Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Makes room for this many additional entries, so that inserting them does not rebuild a shard unless their
    /// hashes are spread very unevenly. Shards without entries allocate the memory at their first entry.
    ///
    /// Shards that are too small are rebuilt here, one after the other. At the domain's limits this does as
    /// [`insert`](Self::insert) does.
    ///
    /// # Panics
    /// If the memory would exceed the address space.
    pub fn reserve(&self, additional: usize) {
        let more = self.shards.share(additional);
        for index in 0..self.shards.count() {
            // Older than the lock, so that copies of entries are dropped after the lock is released, also if one of
            // them panics.
            let mut tables = Vec::new();
            let locked = self.lock_with_room::<InAnyCase, _>(index, |shard| {
                let short = shard.is_short_of(more);
                Some((if short { shard.table.bytes() } else { 0 }, short))
            });
            let Ok(Some((mut shard, room, short))) = locked else { continue };
            shard.demand(more);
            if short {
                shard.rebuild(self.hasher(), None, None, &mut tables);
                hand_over(room, tables.pop().and_then(|new| shard.replace(new)));
            }
        }
    }
}
