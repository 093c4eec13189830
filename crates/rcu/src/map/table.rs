//! The table of one shard: memory, and how a key finds its slot.
//!
//! ```text
//!   slots, the last first      header   control bytes, the first first
//! | ... | slot 2 | slot 1 | slot 0 | H | c0 c1 c2 ... c15 | c16 ... | ... | 16 x EMPTY |
//!                                      ^ control, 64-byte aligned
//! ```
//!
//! A key's home is one of 2^n groups. Its entry is in the first group from there on that had room. After the home
//! groups there are a few groups that are no key's home, so that nothing wraps around; and then control bytes without
//! slots, which stay EMPTY and end every search.
//!
//! Invariants:
//! - Nobody writes to a slot that holds an entry.
//! - A group's EMPTY slots are its last, and an EMPTY slot never becomes EMPTY again. A key's entry is beyond a group
//!   only if that group has no EMPTY slot, so that a search may end at the first one.
//! - While a key stays in the map its entry moves only to slots with higher numbers. Searches and iterations go
//!   upwards, so they cannot miss it.
//!
//! Source: the layout of hashbrown and Abseil's Swiss tables, but groups are aligned and probed one after another.

use super::atomics::{AtomicU64, AtomicUsize, Ordering, fence};
use super::control::{self, LANES, WORDS};
use super::group::{EMPTY, Group, WIDTH};
use crate::retired::for_each_despite_panics;
use std::alloc::{self, Layout, handle_alloc_error};
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Tables of this size and more are aligned to it, and ask for huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// A hash's tag is its topmost seven bits. The lowest bits select the home, and others in between the shard.
const TAG_SHIFT: u32 = 57;
/// How many entries 16 slots of home groups hold before the table is rebuilt: 7/8, as in hashbrown.
const FILL: usize = 14;

/// Precedes the control bytes.
#[repr(C, align(64))]
pub(super) struct Header {
    /// References: one of the shard, and one for each batch of removed entries that is still in the table.
    refs: AtomicUsize,
    /// How many groups have slots. 0 in the table that shards without entries share.
    groups: usize,
    /// How many groups away from its home an entry may be.
    reach: usize,
    /// The number of home groups, less 1.
    pub(super) home_mask: usize,
}

pub(super) const HEADER_BYTES: usize = size_of::<Header>();

#[repr(C)]
struct Vacant {
    header: Header,
    control: [AtomicU64; WORDS],
}

/// What shards without entries point to: one group without slots.
static VACANT: Vacant = Vacant {
    header: Header { refs: AtomicUsize::new(1), groups: 0, reach: 0, home_mask: 0 },
    control: [const { AtomicU64::new(u64::MAX) }; WORDS],
};

/// A pointer to a table. Copies are the same table. A caller that makes one by `from_raw` ensures that the table is
/// alive while it is used; the methods rely on that.
pub(super) struct Table<K, V> {
    control: NonNull<u8>,
    _entries: PhantomData<*mut (K, V)>,
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for Table<K, V> {}

impl<K, V> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.control == other.control
    }
}

/// The base-2 logarithm of how many home groups hold `entries`.
pub(super) fn log2_for(entries: usize) -> u32 {
    entries.div_ceil(FILL).max(1).next_power_of_two().trailing_zeros()
}

/// The part of a hash that is compared before the key.
#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u8 {
    (hash >> TAG_SHIFT) as u8
}

impl<K, V> Table<K, V> {
    /// The table without slots that is shared.
    pub(super) fn vacant() -> Self {
        // SAFETY: the control bytes follow the header.
        let control = unsafe { NonNull::from(&VACANT).cast::<u8>().add(HEADER_BYTES) };
        Self { control, _entries: PhantomData }
    }

    pub(super) fn is_vacant(self) -> bool {
        self == Self::vacant()
    }

    pub(super) fn into_raw(self) -> *mut () {
        self.control.as_ptr().cast()
    }

    /// The reverse of `into_raw`.
    ///
    /// # Safety
    /// `raw` comes from `into_raw`, and the table is alive for as long as the result and its copies are used.
    #[inline(always)]
    pub(super) unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: a table's address is not null.
        Self { control: unsafe { NonNull::new_unchecked(raw.cast()) }, _entries: PhantomData }
    }

    /// The alignment that header and slots need where they meet, which is also what lies between them.
    pub(super) const ALIGN: usize =
        if align_of::<(K, V)>() > HEADER_BYTES { align_of::<(K, V)>() } else { HEADER_BYTES };

    /// The layout of a table of `groups` groups, and the offset of its control bytes.
    fn layout(groups: usize) -> (Layout, usize) {
        let parts = || {
            let slots = size_of::<(K, V)>().checked_mul(groups.checked_mul(WIDTH)?)?;
            let control = slots.checked_next_multiple_of(Self::ALIGN)?.checked_add(Self::ALIGN)?;
            let bytes = control.checked_add((groups + 1) * WIDTH)?;
            let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES.max(Self::ALIGN) } else { Self::ALIGN };
            Some((Layout::from_size_align(bytes, align).ok()?, control))
        };
        parts().expect("the map's capacity exceeds the address space")
    }

    /// Panics if a table of 2^`log2` groups would exceed the address space.
    pub(super) fn assert_possible(log2: u32) {
        Self::layout(1 << log2);
    }

    /// A table without entries of 2^`log2` home groups and `tail` groups beyond.
    pub(super) fn new(log2: u32, tail: usize) -> Self {
        let groups = (1 << log2) + tail;
        let (layout, offset) = Self::layout(groups);
        // SAFETY: the layout has at least the header's size. The header and the control bytes lie within it and are
        // aligned, because `offset` and the header's size are multiples of both alignments.
        unsafe {
            let base = alloc::alloc(layout);
            let control = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout)).add(offset);
            ask_for_huge_pages(base, layout);
            let header =
                Header { refs: AtomicUsize::new(1), groups, reach: groups, home_mask: (1 << log2) - 1 };
            control.sub(HEADER_BYTES).cast().write(header);
            control.write_bytes(EMPTY, (groups + 1) * WIDTH);
            Self { control, _entries: PhantomData }
        }
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: `new` wrote it, and the table is alive.
        unsafe { self.control.sub(HEADER_BYTES).cast().as_ref() }
    }

    /// How many entries it holds before it is rebuilt.
    pub(super) fn capacity(self) -> usize {
        FILL * (self.header().home_mask + 1)
    }

    pub(super) fn groups(self) -> usize {
        self.header().groups
    }

    pub(super) fn bytes(self) -> usize {
        if self.is_vacant() { 0 } else { Self::layout(self.groups()).0.size() }
    }

    #[inline(always)]
    fn home(self, hash: u64) -> usize {
        hash as usize & self.header().home_mask
    }

    /// A group's control bytes.
    ///
    /// # Safety
    /// The group is one of the table's, or the one after them.
    #[inline(always)]
    pub(super) unsafe fn group(self, group: usize) -> Group {
        // SAFETY: within the control bytes by the caller's promise, aligned because groups are.
        control::load(unsafe { self.control.add(group * WIDTH).cast().as_ref() })
    }

    /// The word that holds a slot's control byte, and the byte's place in it.
    ///
    /// # Safety
    /// The table has the slot.
    unsafe fn word(&self, slot: usize) -> (&AtomicU64, usize) {
        // SAFETY: the caller's promise.
        (unsafe { self.control.cast::<AtomicU64>().add(slot / LANES).as_ref() }, slot % LANES)
    }

    /// Where a slot's entry is.
    ///
    /// # Safety
    /// The table has the slot.
    #[inline(always)]
    pub(super) unsafe fn entry(self, slot: usize) -> NonNull<(K, V)> {
        // SAFETY: slots end where the header begins, and there are more than `slot`.
        unsafe { self.control.sub(Self::ALIGN).cast::<(K, V)>().sub(slot + 1) }
    }

    /// The slot that holds `key`. Wait-free: one pass, usually over one group, and at most over all.
    ///
    /// # Safety
    /// Entries that are retired meanwhile are not dropped.
    #[inline(always)]
    pub(super) unsafe fn find<Q: Eq + ?Sized>(self, hash: u64, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        let tag = tag_of(hash);
        let mut at = self.home(hash);
        loop {
            // SAFETY: the group after the last is all EMPTY, and ends the search.
            let group = unsafe { self.group(at) };
            for lane in group.tagged(tag) {
                let slot = at * WIDTH + lane;
                // SAFETY: the tag was read with Acquire, so the entry is complete. By the caller's promise it is not
                // dropped.
                if unsafe { self.entry(slot).as_ref() }.0.borrow() == key {
                    return Some(slot);
                }
            }
            if group.empty().any() {
                return None;
            }
            at += 1;
        }
    }

    /// The first slot in `hash`'s probe sequence, beyond slot `beyond` if given, that may be filled; and whether it
    /// is EMPTY. None if no such slot is within reach.
    ///
    /// # Safety
    /// Nobody else fills the table's slots.
    pub(super) unsafe fn place(self, hash: u64, beyond: Option<usize>) -> Option<(usize, bool)> {
        let home = self.home(hash);
        let first = beyond.map_or(home, |slot| slot / WIDTH);
        let end = self.groups().min((home + 1).saturating_add(self.header().reach));
        for at in first..end {
            // SAFETY: one of the table's groups.
            let group = unsafe { self.group(at) };
            let mut vacant = match beyond {
                Some(slot) if at == first => group.vacant().beyond(slot % WIDTH),
                _ => group.vacant(),
            };
            if let Some(lane) = vacant.next() {
                let slot = at * WIDTH + lane;
                // SAFETY: as above.
                let (word, lane) = unsafe { self.word(slot) };
                return Some((slot, control::state(word, lane) == EMPTY));
            }
        }
        None
    }

    /// Writes an entry into a slot and makes it visible. Returns whether the slot was EMPTY.
    ///
    /// # Safety
    /// `slot` comes from `place`, for `hash`, and nobody has filled a slot of the table since.
    pub(super) unsafe fn fill(self, slot: usize, hash: u64, entry: (K, V)) -> bool {
        // SAFETY: the slot is the table's and holds nothing. No reader looks at it before its tag is published. If it
        // held an entry before, `control::state` in `place` has synchronised with that entry's drop.
        unsafe {
            self.entry(slot).write(entry);
            let (word, lane) = self.word(slot);
            let was = control::state(word, lane);
            control::publish(word, lane, was, tag_of(hash));
            was == EMPTY
        }
    }

    /// Marks a slot's entry as removed. The table must stay alive until `release` is called for the slot, by a
    /// reference from `hold`.
    ///
    /// # Safety
    /// The slot holds an entry, and no other writer is active.
    pub(super) unsafe fn retire(self, slot: usize) {
        // SAFETY: the caller's promise.
        let (word, lane) = unsafe { self.word(slot) };
        control::retire(word, lane, control::state(word, lane));
    }

    /// Drops a removed entry, and gives its slot back, even if the drop panics.
    ///
    /// # Safety
    /// A grace period has passed since `retire`. Called once for each `retire`, while the table is held.
    pub(super) unsafe fn release(self, slot: usize) {
        struct Done<'a>(&'a AtomicU64, usize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                control::release(self.0, self.1);
            }
        }
        // SAFETY: the table is held, the entry was retired and no reader is left.
        unsafe {
            let (word, lane) = self.word(slot);
            let _done = Done(word, lane);
            ptr::drop_in_place(self.entry(slot).as_ptr());
        }
    }

    /// Sets how many groups away from its home an entry may be.
    ///
    /// # Safety
    /// Nobody else has the table yet.
    pub(super) unsafe fn set_reach(self, reach: usize) {
        // SAFETY: the caller has the only reference, and nobody else writes the header.
        unsafe { (*self.control.sub(HEADER_BYTES).cast::<Header>().as_ptr()).reach = reach };
    }

    /// How many groups lie between a slot and the home of `hash`.
    pub(super) fn distance(self, slot: usize, hash: u64) -> usize {
        slot / WIDTH - self.home(hash)
    }

    /// Keeps the table's memory until `let_go`.
    pub(super) fn hold(self) {
        // Relaxed: the caller is a writer, whose shard keeps the table alive.
        self.header().refs.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a `hold`, or the table's first reference. Ending the last one frees the memory.
    ///
    /// # Safety
    /// Called once for each. The caller uses the table no more.
    pub(super) unsafe fn let_go(self) {
        // Release pairs with the Acquire below: all uses of the memory come before it is freed.
        if self.header().refs.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            let (layout, offset) = Self::layout(self.groups());
            // SAFETY: `new` allocated it with this layout, and this was the last reference.
            unsafe { alloc::dealloc(self.control.sub(offset).as_ptr(), layout) };
        }
    }

    /// Slots that hold entries, in ascending order.
    pub(super) fn full(self) -> impl Iterator<Item = usize> {
        // SAFETY: groups of the table.
        (0..self.groups())
            .flat_map(move |at| unsafe { self.group(at) }.full().map(move |lane| at * WIDTH + lane))
    }

    /// Drops the entries that were not removed, and lets go of the table, also if a drop panics.
    ///
    /// # Safety
    /// A grace period has passed since the table was unlinked, or nobody else ever saw it. Called once.
    pub(super) unsafe fn free(self) {
        struct LetGo<K, V>(Table<K, V>);
        impl<K, V> Drop for LetGo<K, V> {
            fn drop(&mut self) {
                // SAFETY: the shard's reference ends here.
                unsafe { self.0.let_go() };
            }
        }
        let _let_go = LetGo(self);
        if std::mem::needs_drop::<(K, V)>() {
            // SAFETY: the slots hold entries that nobody reads any more. `release` drops the removed ones.
            for_each_despite_panics(self.full(), |slot| unsafe {
                ptr::drop_in_place(self.entry(slot).as_ptr())
            });
        }
    }
}

/// Lets the kernel use huge pages for the aligned part of a large table. Otherwise, a look-up in a table of many
/// megabytes also pays for a walk of the page tables. A refusal only costs speed.
fn ask_for_huge_pages(base: *mut u8, layout: Layout) {
    let bytes = layout.size() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if bytes > 0 {
        // SAFETY: the range is part of an allocation that the caller has just made.
        unsafe { crate::platform::ask_for_huge_pages(base, bytes) };
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
