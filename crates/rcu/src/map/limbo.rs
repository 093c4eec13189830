//! What a writer made unreachable, on its way to the domain.

use super::table::Table;
use crate::retired::{Retired, for_each_despite_panics};
use std::ptr;

/// What a writer has made unreachable.
pub(super) enum Garbage<K, V> {
    /// An entry that was removed. The table is held.
    Entry(Table<K, V>, usize),
    /// Several. The table is held once.
    Entries(Table<K, V>, Vec<usize>),
    /// Tables with all their entries.
    Tables(Vec<Table<K, V>>),
}

// SAFETY: to send it is to send the entries it owns.
unsafe impl<K: Send, V: Send> Send for Garbage<K, V> {}

/// What a removed entry counts for: itself, without what it owns, and the note of it.
pub(super) const fn entry_bytes<K, V>() -> usize {
    size_of::<(K, V)>() + size_of::<Garbage<K, V>>()
}

impl<K, V> Garbage<K, V> {
    /// What it counts for.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Entry(..) => entry_bytes::<K, V>(),
            Self::Entries(_, slots) => slots.len() * entry_bytes::<K, V>(),
            Self::Tables(tables) => tables.iter().map(|t| t.bytes()).sum(),
        }
    }
}

impl<K: Send + 'static, V: Send + 'static> Garbage<K, V> {
    /// The address by which readers pin it: that of its table. None for what a map leaves behind, which nobody looks
    /// anything up in.
    fn pinned_by(&self) -> *mut () {
        match self {
            Self::Entry(table, _) | Self::Entries(table, _) => table.into_raw(),
            Self::Tables(tables) if tables.len() == 1 => tables[0].into_raw(),
            Self::Tables(_) => ptr::null_mut(),
        }
    }

    /// As the domain takes it.
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
            // SAFETY: ends the hold that came with the entries, also when a drop panics.
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
