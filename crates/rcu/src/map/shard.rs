//! Shards: each has a table of its own and a lock for its writers.
//!
//! Invariants:
//! - A shard's table pointer changes under its lock only.
//! - Under a lock nothing waits for readers and nothing is dropped. The user's code that does run there
//!   (`Eq`, `Hash`, `Clone`, closures) may panic: it runs before anything is changed.

use super::atomics::{AtomicPtr, AtomicUsize, Ordering};
use super::limbo::Garbage;
use super::table::{Table, log2_for};
use crate::futex::{Held, Lock};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

/// Most shards: the bits that tell the shard must not be those that tell the home in a table of any size that
/// fits in memory.
pub(super) const SHARDS_LIMIT: usize = 1 << 16;
const SHARD_SHIFT: u32 = 41;
/// Most groups beyond the home groups of a new table, and their share.
const TAIL: usize = 15;
const TAIL_SHARE: usize = 8;
/// An entry that would be placed further from its home than so many groups calls for a rebuild; and than
/// twice the farthest of a table just rebuilt, so that keys that collide do not call for one each time.
const REACH: usize = 15;

/// A map's shards.
pub(super) struct Shards<K, V> {
    /// Side by side, for readers, and apart from what writers write: the tables of 64 shards are in 8 cache
    /// lines.
    tables: Box<[AtomicPtr<()>]>,
    /// Their number less 1.
    mask: usize,
    writers: Box<[Writer]>,
    /// No table is made smaller.
    least_log2: u32,
    _entries: PhantomData<Stored<K, V>>,
}

/// Shards hold entries and take them in, so that neither type may stand in for a subtype or a supertype: entries
/// of the one would be read as the other.
type Stored<K, V> = (K, V, fn(K, V));

/// On lines of its own.
#[repr(align(128))]
struct Writer {
    lock: Lock<State>,
    /// Entries. Written by the lock's holder.
    len: AtomicUsize,
}

struct State {
    /// EMPTY slots that may be filled before the table is rebuilt.
    spare: usize,
}

impl<K, V> Shards<K, V> {
    /// `count` shards, a power of two, for at least `entries` in all.
    pub(super) fn new(count: usize, entries: usize) -> Self {
        assert!(count.is_power_of_two() && count <= SHARDS_LIMIT);
        let mean = entries.div_ceil(count);
        // The number of entries in a shard scatters by the root of its mean; four times that is exceeded once
        // in 30,000.
        let share = if count == 1 { mean } else { mean + 4 * mean.isqrt() };
        let tables = (0..count).map(|_| AtomicPtr::new(Table::<K, V>::vacant().into_raw())).collect();
        let writer = |_| Writer { lock: Lock::new(State { spare: 0 }), len: AtomicUsize::new(0) };
        let writers = (0..count).map(writer).collect();
        Self { tables, mask: count - 1, writers, least_log2: log2_for(share), _entries: PhantomData }
    }

    /// Which shard: the bits of a hash below its tag.
    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & self.mask
    }

    /// The pointer to the table that holds `hash`.
    #[inline(always)]
    pub(super) fn pointer(&self, hash: u64) -> &AtomicPtr<()> {
        // SAFETY: the mask is the number of tables, a power of two, less 1.
        unsafe { self.tables.get_unchecked(self.index(hash)) }
    }

    pub(super) fn count(&self) -> usize {
        self.tables.len()
    }

    /// The table of a shard at the moment.
    ///
    /// # Safety
    /// The caller is in a section for as long as the table is used.
    pub(super) unsafe fn table(&self, index: usize) -> Table<K, V> {
        // SAFETY: tables are retired in the domain whose section the caller is in.
        unsafe { load(&self.tables[index]) }
    }

    /// The sum of the shards' numbers of entries, each as it was at some moment of the call.
    pub(super) fn len(&self) -> usize {
        // Relaxed: guards nothing.
        self.writers.iter().map(|w| w.len.load(Ordering::Relaxed)).sum()
    }

    /// Locks the shard of `hash`.
    pub(super) fn lock(&self, hash: u64) -> Locked<'_, K, V> {
        self.lock_at(self.index(hash))
    }

    /// Locks a shard.
    pub(super) fn lock_at(&self, index: usize) -> Locked<'_, K, V> {
        let (writer, pointer) = (&self.writers[index], &self.tables[index]);
        let state = writer.lock.lock();
        // SAFETY: the table is replaced, and then retired, by the lock's holder only.
        let table = unsafe { load(pointer) };
        Locked { state, pointer, len: &writer.len, table, least_log2: self.least_log2 }
    }

    /// Takes all tables out, as the map ends.
    pub(super) fn take(&mut self) -> Vec<Table<K, V>> {
        let vacant = Table::<K, V>::vacant();
        let pointers = self.tables.iter_mut().map(|p| std::mem::replace(p.get_mut(), vacant.into_raw()));
        // SAFETY: nobody else has the map any more; the caller frees the tables after a grace period.
        pointers.map(|raw| unsafe { Table::from_raw(raw) }).filter(|t| !t.is_vacant()).collect()
    }
}

/// A shard's table.
///
/// # Safety
/// As for [`Table::from_raw`]: the caller is in a section of the domain, or holds the lock.
#[inline(always)]
pub(super) unsafe fn load<K, V>(pointer: &AtomicPtr<()>) -> Table<K, V> {
    // SAFETY: the pointer always comes from `into_raw`. Acquire pairs with the Release in `Locked::replace`.
    unsafe { Table::from_raw(pointer.load(Ordering::Acquire)) }
}

/// A shard whose lock is held: the only writer of its table.
pub(super) struct Locked<'m, K, V> {
    state: Held<'m, State>,
    pointer: &'m AtomicPtr<()>,
    len: &'m AtomicUsize,
    pub(super) table: Table<K, V>,
    least_log2: u32,
}

impl<K, V> Locked<'_, K, V> {
    /// The entry of `key` and its slot.
    pub(super) fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<(usize, &(K, V))>
    where
        K: Borrow<Q>,
    {
        // SAFETY: only the lock's holder retires entries or tables; the result borrows the lock.
        unsafe { self.table.find(hash, key).map(|slot| (slot, self.table.entry(slot).as_ref())) }
    }

    /// The entry in a slot that `find` found.
    pub(super) fn entry(&self, slot: usize) -> &(K, V) {
        // SAFETY: as in `find`.
        unsafe { self.table.entry(slot).as_ref() }
    }

    /// The slot for an entry, beyond that of the one it replaces. None when the table must be rebuilt first.
    pub(super) fn place(&self, hash: u64, replaced: Option<usize>) -> Option<usize> {
        // SAFETY: only the lock's holder fills slots.
        let (slot, empty) = unsafe { self.table.place(hash, replaced)? };
        (!empty || self.state.spare > 0).then_some(slot)
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn set_len(&self, len: usize) {
        self.len.store(len, Ordering::Relaxed);
    }

    /// Slots that hold entries.
    pub(super) fn full(&self) -> impl Iterator<Item = (usize, &(K, V))> {
        // SAFETY: as in `find`.
        self.table.full().map(|slot| (slot, unsafe { self.table.entry(slot).as_ref() }))
    }

    /// Makes an entry visible in `slot`, which comes from `place`.
    pub(super) fn fill(&mut self, slot: usize, hash: u64, entry: (K, V)) {
        // SAFETY: the lock's holder is the only one to fill slots, and has not filled one since.
        let was_empty = unsafe { self.table.fill(slot, hash, entry) };
        self.state.spare -= usize::from(was_empty);
        self.set_len(self.len() + 1);
    }

    /// Makes the entry of `slot` invisible: it is for the domain.
    pub(super) fn remove(&mut self, slot: usize) -> Garbage<K, V> {
        self.table.hold();
        self.retire(slot);
        Garbage::Entry(self.table, slot)
    }

    /// As `remove`, for several.
    pub(super) fn remove_all(&mut self, slots: Vec<usize>) -> Garbage<K, V> {
        self.table.hold();
        slots.iter().for_each(|&slot| self.retire(slot));
        Garbage::Entries(self.table, slots)
    }

    fn retire(&mut self, slot: usize) {
        // SAFETY: the callers found the entry under the lock, and the table is held for the garbage.
        unsafe { self.table.retire(slot) };
        self.set_len(self.len() - 1);
    }

    /// Puts `new` in the place of the shard's table, and lets the writers in: the old table, for the domain.
    pub(super) fn replace(mut self, new: Rebuilt<K, V>) -> Option<Garbage<K, V>> {
        self.state.spare = new.0.capacity().saturating_sub(new.1);
        self.set_len(new.1);
        self.publish(new.into_table())
    }

    /// Takes all entries out.
    pub(super) fn clear(mut self) -> Option<Garbage<K, V>> {
        self.state.spare = 0;
        self.set_len(0);
        self.publish(Table::vacant())
    }

    fn publish(self, new: Table<K, V>) -> Option<Garbage<K, V>> {
        // Release pairs with the Acquire in `load`: readers find the new table complete.
        self.pointer.store(new.into_raw(), Ordering::Release);
        (!self.table.is_vacant()).then(|| Garbage::Tables(vec![self.table]))
    }

    /// A table with a copy of every entry but that of slot `replaced`, and a place for an entry with `hash`.
    /// Changes nothing.
    pub(super) fn rebuild(
        &self,
        hasher: &impl BuildHasher,
        hash: u64,
        replaced: Option<usize>,
    ) -> (Rebuilt<K, V>, usize)
    where
        K: Hash + Clone,
        V: Clone,
    {
        let live = self.len() + 1 - usize::from(replaced.is_some());
        // At least a quarter of the room is left, so that the cost of rebuilding is spread over as many
        // changes.
        let log2 = log2_for(live.saturating_mul(4).div_ceil(3)).max(self.least_log2);
        let mut tail = ((1 << log2) / TAIL_SHARE).min(TAIL);
        loop {
            if let Some(done) = self.copied(hasher, hash, replaced, Table::new(log2, tail)) {
                return done;
            }
            // Too many keys in the last home groups. In the end the tail alone has room for all.
            tail = 2 * tail + 1;
        }
    }

    /// `rebuild` into `table`. None when a key finds no place.
    fn copied(
        &self,
        hasher: &impl BuildHasher,
        hash: u64,
        replaced: Option<usize>,
        table: Table<K, V>,
    ) -> Option<(Rebuilt<K, V>, usize)>
    where
        K: Hash + Clone,
        V: Clone,
    {
        // Frees the copies when a clone panics.
        let mut new = Rebuilt(table, 0);
        let mut farthest = 0;
        let mut place = |hash| {
            // SAFETY: nobody else has the new table.
            let (slot, _) = unsafe { table.place(hash, None)? };
            farthest = farthest.max(table.distance(slot, hash));
            Some(slot)
        };
        for (_, (key, value)) in self.full().filter(|&(slot, _)| Some(slot) != replaced) {
            let hash = hasher.hash_one(key);
            let slot = place(hash)?;
            let entry = (key.clone(), value.clone());
            // SAFETY: as above, and the slot is `place`'s last.
            unsafe { table.fill(slot, hash, entry) };
            new.1 += 1;
        }
        let slot = place(hash)?;
        new.1 += 1;
        // SAFETY: as above.
        unsafe { table.set_reach(REACH.max(2 * farthest)) };
        Some((new, slot))
    }
}

/// A table that nobody else has seen, and how many entries it is for.
pub(super) struct Rebuilt<K, V>(Table<K, V>, usize);

impl<K, V> Rebuilt<K, V> {
    /// Puts the last entry into its place.
    pub(super) fn fill(&mut self, slot: usize, hash: u64, entry: (K, V)) {
        // SAFETY: the slot was found by `rebuild`, as its last.
        unsafe { self.0.fill(slot, hash, entry) };
    }

    fn into_table(self) -> Table<K, V> {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl<K, V> Drop for Rebuilt<K, V> {
    fn drop(&mut self) {
        // SAFETY: nobody has seen the table.
        unsafe { self.0.free() };
    }
}
