//! Hazard slots: each pins one object for any time, and holds up nothing else.
//!
//! `acquire` runs a restartable traversal, which ends by storing the pointer that it found in the slot. A writer unlinks
//! the object, calls membarrier and then reads all slots. Either the traversal ended before that call, and the slot's store
//! is visible; or the call restarts it, and it sees the unlink. Where an epoch section takes the place of the restartable
//! one, the slot is stored within it: the writer first waits for the epochs to pass, and then reads the slots.
//!
//! `pin` needs no epoch, because it follows only one pointer. Where the domain is fenced, it stores what the pointer
//! leads to in the slot, executes a fence, and checks whether the pointer is still the same. If it is, it also was
//! when the slot's store became visible, so a writer that unlinks the object later finds the slot. Hence a
//! descheduled thread or vCPU holds up nothing but what its slots pin.
//!
//! Source of `pin`: M. M. Michael, Hazard Pointers (IEEE TPDS 15, 2004).

use crate::core::Core;
use crate::guard::{Guard, fall_back};
use crate::hazard::{Cell, Place};
use crate::mode::is_asymmetric;
use crate::pool::Entry;
use crate::reader::Reader;
use crate::section;
use crate::sync::atomic::Ordering;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

impl Cell {
    /// Runs the traversal `find` as a restartable section, and pins the object that it finds.
    ///
    /// # Safety
    /// `find` keeps the rules of [`Reader::read`]. What it finds is null, or alive as long as it is reachable and then
    /// retired by that address in the domain of `core`. `lock` enters a section of that domain. The caller owns the slot.
    #[inline(always)]
    pub(crate) unsafe fn pin<'a, T>(
        &self,
        core: &Core,
        find: impl Fn() -> *const T,
        lock: impl FnOnce() -> Guard<'a>,
    ) -> *const T {
        // Null is stored too, because an abandoned run may have left what it found.
        let commit = move || {
            let found = find();
            self.store(found);
            found
        };
        let instead = |why, commit| fall_back(core, why, lock, commit);
        // SAFETY: the caller's promise; the slot is the caller's own, and every run overwrites it.
        unsafe { section::restartable(&core.clock.mode, &commit, instead) }
    }

    /// Pins what `place` points to.
    ///
    /// # Safety
    /// The result may only be used if `place` holds null, or points to an object that is alive as long as it does,
    /// and is then retired by that address in the domain of `core`. `lock` enters a section of that domain. The
    /// caller owns the slot.
    #[inline(always)]
    pub(crate) unsafe fn pin_at<'a, T>(
        &self,
        core: &Core,
        place: &Place<T>,
        lock: impl FnOnce() -> Guard<'a>,
    ) -> *const T {
        if !is_asymmetric(&core.clock.mode) {
            return self.pin_fenced(place);
        }
        // SAFETY: the traversal is one load; the rest is the caller's promise.
        unsafe { self.pin(core, || place.load(Ordering::Acquire).cast_const(), lock) }
    }
}

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
    /// Takes a hazard slot. Keep it: taking one is slow, and using it is not.
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

    /// Runs the traversal `f` as a restartable section, and pins the object that it finds until the guard is dropped.
    /// Returns none if `f` returns null.
    ///
    /// # Safety
    /// `f` keeps the rules of [`Reader::read`]. It returns null, or a pointer to an object that is alive as long as
    /// it is reachable and whose owner retires it by that very address in this domain.
    #[inline(always)]
    pub unsafe fn acquire<T>(&mut self, f: impl Fn() -> *const T) -> Option<HazardGuard<'_, T>> {
        let cell = self.cell();
        // SAFETY: the caller's promise; the slot is this value's own.
        let found = unsafe { cell.pin(self.reader.core(), f, || self.reader.lock()) };
        ptr::NonNull::new(found.cast_mut()).map(|object| HazardGuard { cell, object, _shared: PhantomData })
    }

    /// Pins what `place` points to, and returns it. It stays pinned until the slot is used again or dropped. Unlike
    /// [`acquire`](Self::acquire), this holds up nothing else, even where the domain's readers execute fences.
    ///
    /// The pinned object is not freed if it is retired in this domain by the address that `place` held, and if
    /// `place` led to it until then. To follow a list, pin the next node in another slot before you use this one
    /// again. Let writers mark the links of a node that they unlink: otherwise a reader on that node may follow its
    /// link to a successor that is freed already.
    #[inline(always)]
    pub fn pin<T>(&mut self, place: &std::sync::atomic::AtomicPtr<T>) -> *mut T {
        // SAFETY: nothing is dereferenced here; the slot is this value's own.
        unsafe { self.cell().pin_at(self.reader.core(), place, || self.reader.lock()) }.cast_mut()
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.cell().release();
        self.reader.domain().core().hazards.give(self.entry);
    }
}

/// One pinned object. It is not freed before the guard is dropped.
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
        self.cell.release();
    }
}
