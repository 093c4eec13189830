//! A guard that keeps one value of a cell, for any time and on any thread.

use super::RcuCell;
use crate::domain::Domain;
use crate::hazard;
use crate::pool::Entry;
use crate::slot::TooManySlots;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// One value of an [`RcuCell`], which is not freed before this is dropped.
///
/// Writers do not wait for it, and only this one value waits to be freed. It borrows nothing and may be sent: an
/// async task may hold it across an `.await`, and end on another thread. It keeps a hazard slot and a handle of its
/// domain, so that the value outlives the cell, too. A leaked `Held` keeps its value for ever, and also the value's
/// domain. To share it, put it into an [`Arc`](std::sync::Arc). Values of a type without size share an address, so
/// that one `Held` keeps them all.
///
/// ```
/// use reprieve_rcu::RcuCell;
///
/// let routes = RcuCell::new(vec!["a:80".to_owned()]);
/// let held = routes.hold();
/// routes.replace(vec![]);
/// drop(routes);
/// std::thread::spawn(move || assert_eq!(held[0], "a:80")).join().unwrap();
/// ```
/// A reference does not outlive it:
/// ```compile_fail
/// let held = reprieve_rcu::RcuCell::new(String::from("a")).hold();
/// let value: &String = &held;
/// drop(held);
/// println!("{value}");
/// ```
/// ```compile_fail
/// fn for_ever(held: reprieve_rcu::Held<String>) -> &'static String {
///     &held
/// }
/// ```
#[must_use = "the value is released when this is dropped"]
pub struct Held<T: Send + Sync + 'static> {
    value: NonNull<T>,
    /// Dropped after the last use of the value.
    _slot: OwnedSlot,
}

// SAFETY: it gives out shared references, which requires `T: Sync`, and may free the value on the thread where it is
// dropped, which requires `T: Send`. Slots and domains belong to no thread.
unsafe impl<T: Send + Sync + 'static> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync + 'static> Sync for Held<T> {}

/// A hazard slot that borrows nothing.
struct OwnedSlot {
    entry: Entry<hazard::Cell>,
    /// Keeps the slot's pool alive. Dropped after the slot is given back, which frees the value if nobody else holds it.
    domain: Domain,
}

impl OwnedSlot {
    /// Takes a slot of `domain`, unless `limit` slots are in use.
    fn take(domain: &Domain, limit: usize) -> Result<Self, TooManySlots> {
        let entry = domain.core().hazards.take(limit).ok_or(TooManySlots { limit })?;
        Ok(Self { entry, domain: domain.clone() })
    }

    fn cell(&self) -> &hazard::Cell {
        // SAFETY: the domain keeps the pool alive.
        unsafe { self.entry.get() }
    }
}

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        self.cell().release();
        self.domain.core().hazards.give(self.entry);
    }
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// Keeps the value that the cell holds now. Takes a hazard slot, even beyond [`Options::limit_slots`], and locks
    /// the domain's list of slots for a moment. Not for signal handlers.
    ///
    /// [`Options::limit_slots`]: crate::Options::limit_slots
    pub fn hold(&self) -> Held<T> {
        let slot = OwnedSlot::take(self.domain(), usize::MAX);
        self.hold_in(slot.expect("more slots than there is memory for"))
    }

    /// As [`hold`](Self::hold), within the domain's limit of slots.
    ///
    /// # Errors
    /// If as many slots are in use as [`Options::limit_slots`](crate::Options::limit_slots) allows.
    pub fn try_hold(&self) -> Result<Held<T>, TooManySlots> {
        let domain = self.domain();
        OwnedSlot::take(domain, domain.core().limit_slots).map(|slot| self.hold_in(slot))
    }

    fn hold_in(&self, slot: OwnedSlot) -> Held<T> {
        let domain = self.domain();
        // SAFETY: values are retired by their address, in this domain, once they are unlinked. The slot was taken for
        // this value alone.
        let value = unsafe { slot.cell().pin_at(domain.core(), &self.value, || domain.lock()) };
        Held { value: NonNull::new(value.cast_mut()).expect("a cell in use has a value"), _slot: slot }
    }
}

impl<T: Send + Sync + 'static> Deref for Held<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot holds the value's address, so nobody frees the value. `hold_in` found it in the cell.
        unsafe { self.value.as_ref() }
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&**self).finish()
    }
}
