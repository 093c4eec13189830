//! Hazard slots: pin one object, for as long as it takes, without holding up anything else.
//!
//! `acquire` runs a restartable traversal whose last act is to store the pointer it found in the slot. A
//! writer unlinks the object, calls membarrier and then reads all slots. Either the traversal ended before
//! that call, and the slot's store is visible; or it is started again, and sees the unlink. Where sections
//! are pinned epochs, the slot is stored within the epoch: the writer first waits for the epochs to pass, and
//! then reads the slots.

use crate::core::Core;
use crate::pool::Entry;
use crate::reader::{Reader, fall_back};
use crate::section;
use crate::sync::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

/// The address that a slot pins; null when none.
#[derive(Default)]
pub(crate) struct Cell(AtomicPtr<()>);

/// A place for one pinned object, taken from a domain's slots until it is dropped.
pub struct Slot<'r> {
    reader: &'r Reader,
    entry: Entry<Cell>,
}

/// Too many hazard slots are in use in the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySlots {
    /// The domain's limit.
    pub limit: usize,
}

impl std::fmt::Display for TooManySlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "more than {} hazard slots in one domain; Options::limit_slots raises the limit",
            self.limit
        )
    }
}

impl std::error::Error for TooManySlots {}

impl Reader {
    /// Takes a hazard slot. Keep it: taking one is slow, using it is not.
    pub fn slot(&self) -> Result<Slot<'_>, TooManySlots> {
        let core = self.domain().core();
        let limit = core.limit_slots;
        let entry = core.hazards.take(limit).ok_or(TooManySlots { limit })?;
        Ok(Slot { reader: self, entry })
    }
}

impl Slot<'_> {
    #[inline(always)]
    fn cell(&self) -> &Cell {
        // SAFETY: the reader's domain keeps the pool alive.
        unsafe { self.entry.get() }
    }

    /// Runs the traversal `f` as a restartable section, and pins the object that it finds until the guard is
    /// dropped. None when `f` returns null.
    ///
    /// # Safety
    /// `f` keeps the rules of [`Reader::read`]. It returns null or a pointer to an object that is alive as
    /// long as it is reachable, and whose owner retires it by that very address in this domain.
    #[inline(always)]
    pub unsafe fn acquire<T>(&mut self, f: impl Fn() -> *const T) -> Option<HazardGuard<'_, T>> {
        let core = self.reader.core();
        let cell = self.cell();
        // Null is stored too: an abandoned run may have left its find. Release: reads of the traversal
        // precede it.
        let commit = move || {
            let found = f();
            cell.0.store(found.cast_mut().cast(), Ordering::Release);
            found
        };
        let instead = |why, commit| fall_back(self.reader.core(), why, || self.reader.lock(), commit);
        // SAFETY: the caller's promise; the slot is this reader's own, and every run overwrites it.
        let found = unsafe { section::restartable(&core.clock.mode, &commit, instead) };
        ptr::NonNull::new(found.cast_mut()).map(|object| HazardGuard { cell, object, _shared: PhantomData })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.cell().0.store(ptr::null_mut(), Ordering::Release);
        self.reader.domain().core().hazards.give(self.entry);
    }
}

/// One pinned object. Not freed before the guard is dropped.
#[must_use = "the object is released when the guard is dropped"]
pub struct HazardGuard<'s, T> {
    cell: &'s Cell,
    object: ptr::NonNull<T>,
    _shared: PhantomData<&'s T>,
}

impl<T> Deref for HazardGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot holds the object's address, so nobody frees it; `acquire` made it valid.
        unsafe { self.object.as_ref() }
    }
}

impl<T> Drop for HazardGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `pinned`: the object's uses precede its free.
        self.cell.0.store(ptr::null_mut(), Ordering::Release);
    }
}

impl Core {
    /// The addresses that slots pin, sorted. Empty, and quick, while the domain has no slots.
    pub(crate) fn pinned(&self) -> Vec<*mut ()> {
        if self.hazards.len() == 0 {
            return Vec::new();
        }
        let mut held: Vec<_> =
            self.hazards.iter().map(|c| c.0.load(Ordering::Acquire)).filter(|p| !p.is_null()).collect();
        held.sort_unstable();
        held
    }
}
