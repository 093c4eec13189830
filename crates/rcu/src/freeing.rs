//! Whether the calling thread may free objects of a domain, or has to put them aside.
//!
//! Not within a callback of that domain. And of no domain while the thread holds the lock of a map's shard, or runs a hook:
//! a destructor may use that map, a hook may have been called with objects in hand.
//!
//! A callback may use its own domain and others, whose callbacks may use further ones. So there is a list, on the
//! thread's stack, the innermost first. What a callback retires in a domain of that list is only put aside: the call
//! further down the stack frees it, and a long chain needs no stack.

#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::thread_local;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
    /// How many `PutAside` the thread has.
    static ASIDE: Cell<u32> = const { Cell::new(0) };
}

/// While it exists, the thread frees nothing: the next call that retires does.
pub(crate) struct PutAside {
    /// It counts for its thread.
    _thread: PhantomData<*mut ()>,
}

impl PutAside {
    pub(crate) fn begin() -> Self {
        ASIDE.set(ASIDE.get() + 1);
        Self { _thread: PhantomData }
    }
}

impl Drop for PutAside {
    fn drop(&mut self) {
        ASIDE.set(ASIDE.get() - 1);
    }
}

/// A call that frees objects of a domain.
struct Frame {
    /// Its address, which is only compared.
    domain: *const (),
    outer: *const Frame,
}

/// Takes the innermost frame out when dropped, also by a callback's panic.
struct Leave(*const Frame);

impl Drop for Leave {
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

/// Whether the calling thread is within a callback of any domain.
pub(crate) fn within_callback() -> bool {
    !INNERMOST.get().is_null()
}

/// Whether the calling thread puts objects of `domain` aside instead of freeing them.
pub(crate) fn puts_aside<D>(domain: &D) -> bool {
    ASIDE.get() > 0 || is_freeing(ptr::from_ref(domain).cast())
}

/// Whether the calling thread is within a callback of this domain.
fn is_freeing(domain: *const ()) -> bool {
    let mut at = INNERMOST.get();
    // SAFETY: frames lie further down this thread's stack, and leave the list before they end.
    while let Some(frame) = unsafe { at.as_ref() } {
        if ptr::eq(frame.domain, domain) {
            return true;
        }
        at = frame.outer;
    }
    false
}

/// Runs `f`, which frees objects of `domain`.
pub(crate) fn freeing<D, R>(domain: &D, f: impl FnOnce() -> R) -> R {
    let frame = Frame { domain: ptr::from_ref(domain).cast(), outer: INNERMOST.get() };
    let _leave = Leave(frame.outer);
    INNERMOST.set(&raw const frame);
    f()
}
