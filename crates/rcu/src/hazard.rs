//! One hazard slot: the address that it pins and, for slots that a thread keeps, whether it is in use.
//!
//! `slot.rs` explains what slots are for, and has the ways of pinning that involve sections.

use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence, fence};
use std::ptr;

/// A user's pointer: always that of `std`, also under a model checker.
pub(crate) type Place<T> = std::sync::atomic::AtomicPtr<T>;

/// One slot of a domain. The thread that took it from the pool owns it.
#[derive(Default)]
pub(crate) struct Cell {
    /// The address that the slot pins; null when none.
    pinned: AtomicPtr<()>,
    /// For a slot that a thread keeps (`local/slot.rs`): whether it is in use. Only that thread reads this.
    claimed: AtomicBool,
}

impl Cell {
    /// Pins what a traversal has found. Null pins nothing.
    #[inline(always)]
    pub(crate) fn store<T>(&self, found: *const T) {
        // Release: the reads of the traversal come before this store.
        self.pinned.store(found.cast_mut().cast(), Ordering::Release);
    }

    pub(crate) fn pinned(&self) -> *mut () {
        // Acquire pairs with the Release in `release`.
        self.pinned.load(Ordering::Acquire)
    }

    /// As `pin_at`, with a fence of the reader's own. Works in any mode, because all writers execute a fence, too.
    #[inline(never)]
    pub(crate) fn pin_fenced<T>(&self, place: &Place<T>) -> *const T {
        let mut found = place.load(Ordering::Acquire);
        loop {
            self.pinned.store(found.cast(), Ordering::Release);
            // Pairs with the fence in `Core::order`: whichever fence comes second sees what precedes the other.
            fence(Ordering::SeqCst);
            let again = place.load(Ordering::Acquire);
            if ptr::eq(again, found) {
                return found;
            }
            found = again;
        }
    }

    /// Stops pinning.
    #[inline(always)]
    pub(crate) fn release(&self) {
        // Release pairs with the Acquire in `Core::pinned`: the object's uses precede its free.
        self.pinned.store(ptr::null_mut(), Ordering::Release);
    }

    /// Claims the slot, on the thread that keeps it. Returns false while it is in use already.
    #[inline(always)]
    pub(crate) fn claim(&self) -> bool {
        // A signal handler that comes between the two lines leaves the slot as it found it.
        if self.claimed.load(Ordering::Relaxed) {
            return false;
        }
        self.claimed.store(true, Ordering::Relaxed);
        // A handler that runs while the slot pins something finds it claimed.
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Ends what `claim` began.
    #[inline(always)]
    pub(crate) fn unclaim(&self) {
        self.release();
        compiler_fence(Ordering::SeqCst);
        self.claimed.store(false, Ordering::Relaxed);
    }

    /// Whether a slot that a thread keeps is in use.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Relaxed)
    }
}
