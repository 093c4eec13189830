//! What a writer made unreachable, on its way to the domain.

use super::table::Table;
use crate::domain::Domain;
use crate::garbage::Full;
use crate::reclaim::Reclaim;
use crate::retired::Retired;
use std::mem::ManuallyDrop;

/// Room for one object in a domain's garbage. Reserved before a writer takes a lock, because the domain may
/// wait for readers and run callbacks; given back when it is not used.
pub(super) struct Room<'d> {
    reclaim: &'d Reclaim,
    bytes: usize,
}

impl<'d> Room<'d> {
    /// Reserves room by the domain's policy.
    pub(super) fn take(domain: &'d Domain, bytes: usize) -> Result<Self, Full> {
        let reclaim = domain.reclaim();
        reclaim.admit(bytes)?;
        Ok(Self { reclaim, bytes })
    }

    /// Reserves room, beyond the domain's limits if its policy refuses.
    pub(super) fn force(domain: &'d Domain, bytes: usize) -> Self {
        Self::take(domain, bytes).unwrap_or_else(|_| {
            domain.reclaim().garbage.force(bytes);
            Self { reclaim: domain.reclaim(), bytes }
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands `garbage` to the domain. Not under a lock: the domain frees here what is due.
    ///
    /// # Safety
    /// Readers that enter a section from now on cannot reach it.
    pub(super) unsafe fn retire<K: Send + 'static, V: Send + 'static>(self, garbage: Garbage<K, V>) {
        let (room, bytes) = (ManuallyDrop::new(self), garbage.bytes());
        assert!(bytes <= room.bytes, "more garbage than there is room for");
        room.reclaim.garbage.release(0, room.bytes - bytes);
        // SAFETY: `free` takes the box back, once, a grace period later.
        room.reclaim.accept(unsafe { Retired::new(Box::into_raw(Box::new(garbage)), bytes, free::<K, V>) });
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.reclaim.garbage.release(1, self.bytes);
    }
}

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
                slots.into_iter().for_each(|slot| table.release(slot));
            }
            Garbage::Tables(tables) => tables.into_iter().for_each(|table| table.free()),
        }
    }
}
