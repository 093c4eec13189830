//! Changing a cell's value.

use super::RcuCell;
use crate::garbage::Full;
use crate::reclaim::Room;
use crate::retired::Retired;
use std::ptr;
use std::sync::atomic::Ordering;

/// # Writing
///
/// These methods never fail. At the domain's limits they do what [`Options::at_limit`](crate::Options::at_limit)
/// says, and exceed the limits if there is no room even then. Methods that begin with `try_` refuse instead.
///
/// The old value is freed within the call, unless a section or a slot of a reader is in the way. For that, the caller
/// must hold no section of the domain.
impl<T: Send + Sync + 'static> RcuCell<T> {
    /// Makes `value` the cell's value, whatever it was.
    ///
    /// To change a part of the value, call [`update`](Self::update). If you read the value, change the copy and then
    /// replace the value, you lose what another writer wrote in between.
    pub fn replace(&self, value: T) {
        self.replace_in(self.room_in_any_case(), value);
    }

    /// As [`replace`](Self::replace), within the domain's limits.
    ///
    /// # Errors
    /// At the domain's limits, by its policy. The cell keeps its value, and the new one is dropped.
    pub fn try_replace(&self, value: T) -> Result<(), Full> {
        // Room first, because the swap cannot be undone.
        let room = self.room()?;
        self.replace_in(room, value);
        Ok(())
    }

    fn replace_in(&self, room: Room<'_>, value: T) {
        // Release pairs with the Acquire in `load` and others: readers find the new value complete. Acquire: the old
        // value is complete when it is freed.
        let old = self.value.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: the swap unlinked `old`, which came from a box. Only readers of this domain can still read it.
        room.accept(unsafe { Retired::of_box(old) });
    }

    /// Replaces the value by what `f` makes of it. Calls `f` again if another writer was quicker, so that no writer's
    /// change is lost.
    ///
    /// The value that `f` sees is pinned as in [`with`](Self::with). If `f` panics, the cell is unchanged. If `f`
    /// itself changes the cell, it is called for ever.
    pub fn update(&self, f: impl FnMut(&T) -> T) {
        self.update_in(self.room_in_any_case(), f);
    }

    /// As [`update`](Self::update), within the domain's limits.
    ///
    /// # Errors
    /// At the domain's limits, by its policy. `f` is then not called.
    pub fn try_update(&self, f: impl FnMut(&T) -> T) -> Result<(), Full> {
        // Before the value is pinned, because this may have to wait.
        let room = self.room()?;
        self.update_in(room, f);
        Ok(())
    }

    fn update_in(&self, room: Room<'_>, mut f: impl FnMut(&T) -> T) {
        let mut attempt = |old: &T| self.exchange(old, f(old)).ok();
        let old = loop {
            if let Some(old) = self.with(&mut attempt) {
                break old;
            }
        };
        // SAFETY: the exchange unlinked `old`, which came from a box. It is no longer pinned here, and may be freed.
        room.accept(unsafe { Retired::of_box(old) });
    }

    /// Makes `new` the cell's value if its value is still `expected`: that very object, not an equal one. `expected`
    /// is what [`load`](Self::load), [`with`](Self::with) or [`hold`](Self::hold) gave out.
    ///
    /// `expected` cannot have been replaced and have come back: it is alive for as long as the caller borrows it, and
    /// no other value gets its address meanwhile. Values of a type without size cannot be distinguished, so that they
    /// all match.
    ///
    /// ```
    /// use reprieve_rcu::{Domain, RcuCell};
    ///
    /// let cell = RcuCell::new(String::from("a"));
    /// let guard = Domain::global().lock();
    /// let seen = cell.load(&guard);
    /// cell.compare_exchange(seen, String::from("b")).unwrap();
    /// assert_eq!(cell.compare_exchange(seen, String::from("c")), Err(String::from("c")));
    /// assert_eq!((seen.as_str(), cell.get_cloned().as_str()), ("a", "b"));
    /// ```
    ///
    /// # Errors
    /// When the cell has another value; `new` is given back.
    pub fn compare_exchange(&self, expected: &T, new: T) -> Result<(), T> {
        let room = self.room_in_any_case();
        let old = self.exchange(expected, new)?;
        // SAFETY: the exchange unlinked `old`, which came from a box. The section or slot that protects the caller's
        // reference also keeps the domain from freeing it.
        room.accept(unsafe { Retired::of_box(old) });
        Ok(())
    }

    /// Makes `new` the value if the value is `expected`, and returns the old value's pointer, to be retired.
    /// Otherwise returns `new`.
    ///
    /// The borrow keeps `expected` alive, so that its address is not used again meanwhile.
    fn exchange(&self, expected: &T, new: T) -> Result<*mut T, T> {
        let (old, new) = (ptr::from_ref(expected).cast_mut(), Box::into_raw(Box::new(new)));
        // Orderings as in `replace_in`. Returns the cell's own pointer, because `expected` is only a borrow.
        match self.value.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(old) => Ok(old),
            // SAFETY: made above, and nobody else has seen it.
            Err(_) => Err(*unsafe { Box::from_raw(new) }),
        }
    }

    fn room(&self) -> Result<Room<'_>, Full> {
        self.domain().reclaim().room(size_of::<T>())
    }

    fn room_in_any_case(&self) -> Room<'_> {
        self.domain().reclaim().room_in_any_case(size_of::<T>())
    }
}
