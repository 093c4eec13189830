//! Shards. Each has a table of its own and a lock for its writers.
//!
//! Invariants:
//! - A shard's table pointer changes only under its lock.
//! - Under a lock nothing waits for readers, and no entry is dropped. The user's code that does run there (`Eq`,
//!   `Hash`, `Clone`, closures) may panic, and so runs before anything is changed.
//!
//! `rebuild.rs` copies a shard's entries into a new table.

use super::atomics::{AtomicPtr, AtomicUsize, Ordering};
use super::limbo::Garbage;
use super::table::{Table, log2_for};
use crate::freeing::PutAside;
use crate::futex::{Held, Lock};
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ptr::NonNull;

mod rebuild;
pub(super) use rebuild::Rebuilt;

/// The most shards that a map may have. The bits of a hash that select the shard must not be those that select the
/// home, in a table of any size that fits in memory.
pub(super) const SHARDS_LIMIT: usize = 1 << 16;
const SHARD_SHIFT: u32 = 41;

pub(super) struct Shards<K, V> {
    /// Side by side, for readers, and apart from what writers write. The tables of 64 shards fill 8 cache lines.
    tables: Box<[AtomicPtr<()>]>,
    /// The number of tables, less 1.
    mask: usize,
    writers: Box<[Writer]>,
    _entries: PhantomData<Stored<K, V>>,
}

/// Shards hold entries and accept entries. So neither type may stand in for a subtype or a supertype: entries of one
/// type would be read as the other.
type Stored<K, V> = (K, V, fn(K, V));

/// On lines of its own.
#[repr(align(128))]
struct Writer {
    lock: Lock<State>,
    /// How many entries there are. Written only by the lock's holder.
    len: AtomicUsize,
}

struct State {
    /// EMPTY slots that may be filled before the table is rebuilt.
    spare: usize,
    /// No table of the shard may be smaller than this.
    least_log2: u32,
}

impl<K, V> Shards<K, V> {
    /// `count` shards, a power of two, for at least `entries` in all.
    pub(super) fn new(count: usize, entries: usize) -> Self {
        assert!(count.is_power_of_two() && count <= SHARDS_LIMIT);
        let least_log2 = log2_for(share(entries, count));
        let tables = (0..count).map(|_| AtomicPtr::new(Table::<K, V>::vacant().into_raw())).collect();
        let writer = |_| Writer { lock: Lock::new(State { spare: 0, least_log2 }), len: AtomicUsize::new(0) };
        let writers = (0..count).map(writer).collect();
        Self { tables, mask: count - 1, writers, _entries: PhantomData }
    }

    /// The shard of a hash, selected by the bits below its tag.
    #[inline(always)]
    pub(super) fn index(&self, hash: u64) -> usize {
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

    /// The current table of a shard.
    ///
    /// # Safety
    /// The caller is in a section for as long as the table is used.
    pub(super) unsafe fn table(&self, index: usize) -> Table<K, V> {
        // SAFETY: tables are retired in the domain whose section the caller is in.
        unsafe { load(&self.tables[index]) }
    }

    /// The sum of the shards' numbers of entries, each at some moment of the call.
    pub(super) fn len(&self) -> usize {
        // Relaxed: it guards nothing.
        self.writers.iter().map(|w| w.len.load(Ordering::Relaxed)).sum()
    }

    /// A shard's part of `entries` that are to be added to the map.
    pub(super) fn share(&self, entries: usize) -> usize {
        share(entries, self.count())
    }

    pub(super) fn lock(&self, index: usize) -> Locked<'_, K, V> {
        let (writer, pointer) = (&self.writers[index], &self.tables[index]);
        let state = writer.lock.lock();
        // SAFETY: only the lock's holder replaces the table, and then retires it.
        let table = unsafe { load(pointer) };
        Locked { state, pointer, len: &writer.len, table, _aside: PutAside::begin() }
    }

    /// Takes all tables out, as the map ends.
    pub(super) fn take(&mut self) -> Vec<Table<K, V>> {
        let vacant = Table::<K, V>::vacant();
        let pointers = self.tables.iter_mut().map(|p| std::mem::replace(p.get_mut(), vacant.into_raw()));
        // SAFETY: nobody else has the map any more; the caller frees the tables after a grace period.
        pointers.map(|raw| unsafe { Table::from_raw(raw) }).filter(|t| !t.is_vacant()).collect()
    }
}

/// How many of `entries` one shard may have to hold. This number scatters by the square root of its mean; four times
/// that is exceeded once in 30,000.
fn share(entries: usize, shards: usize) -> usize {
    let mean = entries.div_ceil(shards);
    if shards == 1 { mean } else { mean.saturating_add(4 * mean.isqrt()) }
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

/// A shard whose lock is held by this, the only writer of its table.
pub(super) struct Locked<'m, K, V> {
    state: Held<'m, State>,
    pointer: &'m AtomicPtr<()>,
    len: &'m AtomicUsize,
    pub(super) table: Table<K, V>,
    /// Destructors may use the map, so this ends after the lock: fields are dropped in this order.
    _aside: PutAside,
}

impl<K, V> Locked<'_, K, V> {
    /// The slot that holds `key`.
    pub(super) fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        // SAFETY: only the lock's holder retires entries or tables.
        unsafe { self.table.find(hash, key) }
    }

    /// The entry in a slot that `find` found.
    pub(super) fn entry(&self, slot: usize) -> &(K, V) {
        // SAFETY: the slot holds an entry, which only the lock's holder retires. The result borrows the lock.
        unsafe { self.table.entry(slot).as_ref() }
    }

    /// The address of the entry that `find` found in a slot.
    pub(super) fn pointer_to(&self, slot: usize) -> NonNull<(K, V)> {
        NonNull::from(self.entry(slot))
    }

    /// The slot for an entry, beyond that of the entry that it replaces. None if the table must be rebuilt first.
    pub(super) fn place(&self, hash: u64, replaced: Option<usize>) -> Option<usize> {
        // SAFETY: only the lock's holder fills slots.
        let (slot, empty) = unsafe { self.table.place(hash, replaced)? };
        (!empty || self.state.spare > 0).then_some(slot)
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether the table, if there is one, must be rebuilt to hold this many more entries.
    pub(super) fn is_short_of(&self, entries: usize) -> bool {
        !self.table.is_vacant() && self.state.spare < entries
    }

    /// From now on no table of the shard may be too small for this many more entries.
    ///
    /// # Panics
    /// If such a table would exceed the address space. The shard is then unchanged.
    pub(super) fn demand(&mut self, entries: usize) {
        let log2 = log2_for(self.len().saturating_add(entries));
        Table::<K, V>::assert_possible(log2);
        self.state.least_log2 = self.state.least_log2.max(log2);
    }

    fn set_len(&self, len: usize) {
        self.len.store(len, Ordering::Relaxed);
    }

    /// Slots that hold entries.
    pub(super) fn full(&self) -> impl Iterator<Item = (usize, &(K, V))> {
        self.table.full().map(|slot| (slot, self.entry(slot)))
    }

    /// Makes an entry visible in `slot`, which comes from `place`.
    pub(super) fn fill(&mut self, slot: usize, hash: u64, entry: (K, V)) -> NonNull<(K, V)> {
        // SAFETY: the lock's holder is the only one to fill slots, and has not filled one since.
        let was_empty = unsafe { self.table.fill(slot, hash, entry) };
        self.state.spare -= usize::from(was_empty);
        self.set_len(self.len() + 1);
        self.pointer_to(slot)
    }

    /// Makes the entry of `slot` invisible. Returns it as garbage for the domain.
    pub(super) fn remove(&mut self, slot: usize) -> Garbage<K, V> {
        self.table.hold();
        self.retire(slot);
        Garbage::Entry(self.table, slot)
    }

    /// As `remove`, for several entries.
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

    /// Replaces the shard's table by `new`, and releases the lock. Returns the old table as garbage for the domain.
    pub(super) fn replace(mut self, new: Rebuilt<K, V>) -> Option<Garbage<K, V>> {
        self.state.spare = new.capacity().saturating_sub(new.len());
        self.set_len(new.len());
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
}
