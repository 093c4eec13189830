//! Whether the calling thread may free objects of a domain now, or must leave them to a later call.
//!
//! A thread frees nothing of a domain while it runs one of that domain's callbacks. It frees nothing of any domain
//! while it holds the lock of a map's shard, because a destructor may use that map; nor while it runs a hook, because
//! the hook's caller may have objects in hand.
//!
//! A callback may use its own domain and others, whose callbacks may use yet others. Each thread therefore keeps a list
//! on its stack of the domains that it is freeing for, the innermost first. What a callback retires in one of these
//! domains is put aside, and the call further down the stack frees it. So a long chain of callbacks needs no deep stack.

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

/// While it exists, the thread frees nothing. The next call that retires an object does.
pub(crate) struct PutAside {
    /// It counts for the thread that made it.
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

/// A call in progress that frees objects of a domain.
struct Frame {
    /// Its address, which is only compared.
    domain: *const (),
    outer: *const Frame,
}

/// Takes the innermost frame out when dropped, also if a callback panics.
struct Leave(*const Frame);

impl Drop for Leave {
    fn drop(&mut self) {
        INNERMOST.set(self.0);
    }
}

pub(crate) fn within_callback() -> bool {
    !INNERMOST.get().is_null()
}

/// Whether the calling thread must put objects of `domain` aside instead of freeing them.
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
