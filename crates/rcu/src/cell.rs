//! A shared value that is replaced as a whole: configuration, routing tables, the root of a larger structure.

use crate::core::Core;
use crate::domain::Domain;
use crate::garbage::Full;
use crate::reader::Section;
use crate::retired::Retired;
use crate::room::Room;
use crate::section;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that readers read at the cost of a pointer, and writers replace.
///
/// ```
/// use reprieve_rcu::{Domain, RcuCell};
///
/// let domain = Domain::default();
/// let limit = RcuCell::new(&domain, 100u64);
/// assert_eq!(limit.get(), 100); // a copy, in a restartable section
/// limit.replace(200).unwrap();
/// let guard = domain.lock();
/// assert_eq!(*limit.load(&guard), 200); // a reference, for as long as the guard
/// ```
pub struct RcuCell<T: Send + Sync + 'static> {
    domain: Domain,
    /// The domain's, one load nearer.
    core: Arc<Core>,
    /// Never null; from `Box::into_raw`.
    value: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell whose old values are freed by `domain`.
    pub fn new(domain: &Domain, value: T) -> Self {
        let value = AtomicPtr::new(Box::into_raw(Box::new(value)));
        Self { domain: domain.clone(), core: domain.core().clone(), value }
    }

    /// The domain that frees old values.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The value, for as long as the section lasts.
    ///
    /// # Panics
    /// When the section is one of another domain.
    #[inline(always)]
    pub fn load<'s>(&self, section: &'s impl Section) -> &'s T {
        assert!(section.is_of(&self.core), "the section is not one of the cell's domain");
        // SAFETY: the pointer is valid, and what it points to is retired in the domain whose section the
        // caller is in. Acquire pairs with the Release in `swap`.
        unsafe { &*self.value.load(Ordering::Acquire) }
    }

    /// Makes `value` the cell's value; the old one is freed after a grace period.
    ///
    /// # Errors
    /// When the domain is at its limits and its policy refuses; the cell keeps its value, and the new one is
    /// dropped.
    pub fn replace(&self, value: T) -> Result<(), Full> {
        // Room first: once the values are swapped there is no way back.
        let room = self.room()?;
        // Release pairs with the Acquire in `load` and `get`: readers find the new value complete. Acquire:
        // the old one is complete when it is freed.
        let old = self.value.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: the swap unlinked `old`, which came from a box; only readers of this domain can still read
        // it.
        room.accept(unsafe { Retired::of_box(old) });
        Ok(())
    }

    /// Replaces the value by what `f` makes of it, again when another writer was quicker.
    ///
    /// # Errors
    /// As for `replace`; `f` is then not called.
    pub fn update(&self, f: impl Fn(&T) -> T) -> Result<(), Full> {
        // Before the section below begins: room may have to be waited for.
        let room = self.room()?;
        let guard = self.domain.lock();
        loop {
            let old = self.value.load(Ordering::Acquire);
            // SAFETY: the guard keeps the old value alive.
            let new = Box::into_raw(Box::new(f(unsafe { &*old })));
            // Release pairs with the Acquire in `load` and `get`.
            if self.value.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                drop(guard);
                // SAFETY: the exchange unlinked `old`, which came from a box.
                room.accept(unsafe { Retired::of_box(old) });
                return Ok(());
            }
            // SAFETY: made above, seen by nobody else.
            drop(unsafe { Box::from_raw(new) });
        }
    }

    /// Room for one value in the domain's limits.
    fn room(&self) -> Result<Room<'_>, Full> {
        self.domain.reclaim().room(size_of::<T>())
    }
}

impl<T: Copy + Send + Sync + 'static> RcuCell<T> {
    /// A copy of the value, taken in a restartable section: a preempted reader delays no writer.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: sections that load and copy, nothing else. The pointer is valid within them; Acquire as in `load`.
        unsafe {
            section::copied(&self.core.clock.mode, &self.value, 0)
                .unwrap_or_else(|| self.domain.read(|| *self.value.load(Ordering::Acquire)))
        }
    }
}

impl<T: Send + Sync + 'static> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // Nobody could take a refusal: at its limits, the domain exceeds them by this value.
        let room = self.domain.reclaim().room_in_any_case(size_of::<T>());
        // SAFETY: nobody else can reach the cell, and its value came from a box; references to the value
        // itself may live on in sections, for which a grace period waits.
        room.accept(unsafe { Retired::of_box(*self.value.get_mut()) });
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = self.domain.lock();
        f.debug_tuple("RcuCell").field(self.load(&guard)).finish()
    }
}
