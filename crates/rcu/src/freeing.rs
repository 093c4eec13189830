//! Which domains' objects the calling thread is freeing: within a callback, that is.
//!
//! A callback may use its own domain and others, whose callbacks may use further ones. So there is a list, on the
//! thread's stack, the innermost first. What a callback retires in a domain of that list is only put aside: the call
//! further down the stack frees it, and a long chain needs no stack.

use crate::reclaim::Reclaim;
#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::thread_local;
use std::cell::Cell;
use std::ptr;

thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// A call that frees objects of a domain.
struct Frame {
    /// For comparison alone.
    domain: *const Reclaim,
    outer: *const Frame,
}

/// Takes the innermost frame out when dropped, also by a callback's panic.
struct Leave(*const Frame);

impl Drop for Leave {
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

impl Reclaim {
    /// Whether the calling thread is within a callback of this domain.
    pub(crate) fn is_freeing(&self) -> bool {
        let mut at = INNERMOST.get();
        // SAFETY: frames lie further down this thread's stack, and leave the list before they end.
        while let Some(frame) = unsafe { at.as_ref() } {
            if ptr::eq(frame.domain, self) {
                return true;
            }
            at = frame.outer;
        }
        false
    }

    /// Runs `f`, which frees objects of this domain.
    pub(crate) fn freeing<R>(&self, f: impl FnOnce() -> R) -> R {
        let frame = Frame { domain: self, outer: INNERMOST.get() };
        let _leave = Leave(frame.outer);
        INNERMOST.set(&raw const frame);
        f()
    }
}
