//! Garbage of a map: what a writer made unreachable, on its way to the domain.

use super::table::Table;
use crate::retired::{Retired, for_each_despite_panics};
use std::ptr;

/// What a writer has made unreachable.
pub(super) enum Garbage<K, V> {
    /// A removed entry. The table is held.
    Entry(Table<K, V>, usize),
    /// Several removed entries. The table is held once.
    Entries(Table<K, V>, Vec<usize>),
    /// Tables with all their entries.
    Tables(Vec<Table<K, V>>),
}

// SAFETY: sending it means sending the entries that it owns.
unsafe impl<K: Send, V: Send> Send for Garbage<K, V> {}

/// What a removed entry counts for: itself and the note of it, without what it owns.
pub(super) const fn entry_bytes<K, V>() -> usize {
    size_of::<(K, V)>() + size_of::<Garbage<K, V>>()
}

impl<K, V> Garbage<K, V> {
    /// How many bytes it counts for.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Entry(..) => entry_bytes::<K, V>(),
            Self::Entries(_, slots) => slots.len() * entry_bytes::<K, V>(),
            Self::Tables(tables) => tables.iter().map(|t| t.bytes()).sum(),
        }
    }
}

impl<K: Send + 'static, V: Send + 'static> Garbage<K, V> {
    /// The address by which readers pin it, which is that of its table. Null for what a map leaves behind when it
    /// ends, because nobody looks up anything in that.
    fn pinned_by(&self) -> *mut () {
        match self {
            Self::Entry(table, _) | Self::Entries(table, _) => table.into_raw(),
            Self::Tables(tables) if tables.len() == 1 => tables[0].into_raw(),
            Self::Tables(_) => ptr::null_mut(),
        }
    }

    /// Turns it into what the domain accepts.
    ///
    /// # Safety
    /// Readers that enter a section from now on cannot reach it.
    pub(super) unsafe fn retired(self) -> Retired {
        let (bytes, pinned_by) = (self.bytes(), self.pinned_by());
        // SAFETY: `free` takes the box back, once, a grace period later.
        unsafe { Retired::new(Box::into_raw(Box::new(self)), bytes, free::<K, V>) }.pinned_by(pinned_by)
    }
}

/// Drops what `garbage` stands for.
///
/// # Safety
/// `garbage` comes from a box, and a grace period has passed since it was retired.
unsafe fn free<K, V>(garbage: *mut Garbage<K, V>) {
    struct LetGo<K, V>(Table<K, V>);
    impl<K, V> Drop for LetGo<K, V> {
        fn drop(&mut self) {
            // SAFETY: ends the hold that came with the entries, also if a drop panics.
            unsafe { self.0.let_go() };
        }
    }
    // SAFETY: the caller's promise; each slot and table is in one piece of garbage only.
    unsafe {
        match *Box::from_raw(garbage) {
            Garbage::Entry(table, slot) => {
                let _held = LetGo(table);
                table.release(slot);
            }
            Garbage::Entries(table, slots) => {
                let _held = LetGo(table);
                for_each_despite_panics(slots.into_iter(), |slot| table.release(slot));
            }
            Garbage::Tables(tables) => for_each_despite_panics(tables.into_iter(), |table| table.free()),
        }
    }
}
