//! Using or cloning a cell's value while a slot pins it.

use super::RcuCell;
use crate::local;
use std::sync::Arc;

/// # Pinning
///
/// The thread keeps a hazard slot for this, which pins the value that the cell holds. Only that value then waits to
/// be freed. Writers do not wait, and neither does anything else that they retire. So the closure, or `clone`, may
/// take any time, block or panic.
///
/// A thread has one such slot per domain. While it is in use, by an outer `with` or by code that a signal handler
/// interrupted, an inner call reads in a section instead ([`Domain::lock`](crate::Domain::lock)). So does a thread
/// that finds no slot left ([`Options::limit_slots`](crate::Options::limit_slots)). The domain's garbage then waits
/// for the call. A signal handler may make these calls if its thread has pinned and locked in that domain before, and
/// in no other domain since.
impl<T: Send + Sync + 'static> RcuCell<T> {
    /// Calls `f` with the value.
    ///
    /// ```
    /// let hosts = reprieve_rcu::RcuCell::new(vec!["a:80".to_owned()]);
    /// assert_eq!(hosts.with(|hosts| hosts.len()), 1);
    /// ```
    /// ```compile_fail
    /// let hosts = reprieve_rcu::RcuCell::new(vec!["a:80".to_owned()]);
    /// let first = hosts.with(|hosts| &hosts[0]); // would outlive the pin
    /// ```
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let domain = self.domain();
        let Some(slot) = local::slot::claim(domain.core()) else {
            return f(self.load(&domain.lock()));
        };
        // SAFETY: values are retired by their address, in this domain, once they are unlinked. The slot is the
        // thread's own.
        let value = unsafe { slot.pin_at(domain.core(), &self.value, || domain.lock()) };
        // SAFETY: the slot pins the value until it is dropped, at the end of this function. A cell in use has a value.
        f(unsafe { &*value })
    }

    /// A clone of the value.
    #[inline]
    pub fn get_cloned(&self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }
}

impl<U: ?Sized + Send + Sync + 'static> RcuCell<Arc<U>> {
    /// Another handle of what the cell's `Arc` points to. You may keep it for any time: the object lives as long as
    /// it has handles, and the cell's old `Arc` is freed at once.
    ///
    /// ```
    /// use reprieve_rcu::RcuCell;
    /// use std::sync::Arc;
    ///
    /// let config = RcuCell::new(Arc::new(vec!["a:80".to_owned()]));
    /// let mine = config.load_arc();
    /// config.replace(Arc::new(vec![]));
    /// assert_eq!((mine.len(), Arc::strong_count(&mine)), (1, 1));
    /// ```
    #[inline]
    pub fn load_arc(&self) -> Arc<U> {
        self.get_cloned()
    }
}
