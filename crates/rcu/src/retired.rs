//! One retired object: how it is freed, and by which address a slot pins it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

/// An object that waits for a grace period, and how it is freed afterwards.
pub(crate) struct Retired {
    object: *mut (),
    free: unsafe fn(*mut ()),
    bytes: usize,
    /// The address by which slots pin it, or null if none can. Null for callbacks: all that capture nothing share one
    /// address.
    pinned_by: *mut (),
}

// SAFETY: `new` and `of_callback` only accept what may be sent.
unsafe impl Send for Retired {}

impl Retired {
    /// An object that `free` frees.
    ///
    /// # Safety
    /// After the grace period, `free(object)` may be called once, by any thread.
    pub(crate) unsafe fn new<T: Send>(object: *mut T, bytes: usize, free: unsafe fn(*mut T)) -> Self {
        // SAFETY: the two function types differ only in the type behind a thin pointer, which the calling convention
        // ignores.
        let free = unsafe { std::mem::transmute::<unsafe fn(*mut T), unsafe fn(*mut ())>(free) };
        Self { object: object.cast(), free, bytes, pinned_by: object.cast() }
    }

    /// An object from `Box::into_raw`, which is freed by dropping the box. It counts for its own size.
    ///
    /// # Safety
    /// After the grace period the box may be taken back once, by any thread.
    pub(crate) unsafe fn of_box<T: Send>(object: *mut T) -> Self {
        unsafe fn drop_box<T>(object: *mut T) {
            // SAFETY: `of_box`'s caller made it with `Box::into_raw`, and it is freed once.
            drop(unsafe { Box::from_raw(object) });
        }
        // SAFETY: the caller's promise.
        unsafe { Self::new(object, size_of::<T>(), drop_box::<T>) }
    }

    /// A callback. It is boxed, which costs one allocation.
    pub(crate) fn of_callback<F: FnOnce() + Send + 'static>(callback: Box<F>, bytes: usize) -> Self {
        unsafe fn call<F: FnOnce()>(callback: *mut F) {
            // SAFETY: `of_callback` took the pointer from a box, and the callback is called once.
            unsafe { Box::from_raw(callback)() }
        }
        // SAFETY: `call` takes the box back, once; the closure may be sent.
        let retired = unsafe { Self::new(Box::into_raw(callback), bytes, call::<F>) };
        retired.pinned_by(ptr::null_mut())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a hazard slot pins it. `held` are the pinned addresses, sorted.
    pub(crate) fn is_held(&self, held: &[*mut ()]) -> bool {
        !self.pinned_by.is_null() && held.binary_search(&self.pinned_by).is_ok()
    }

    /// The same object, pinned by another address than its own.
    pub(crate) fn pinned_by(self, address: *mut ()) -> Self {
        Self { pinned_by: address, ..self }
    }

    /// Frees the object.
    ///
    /// # Safety
    /// A grace period has passed since it was retired, and no slot pins it.
    pub(crate) unsafe fn free(self) {
        // SAFETY: the caller of `new` allowed this call, and `self` is gone afterwards.
        unsafe { (self.free)(self.object) }
    }
}

/// Frees all of `objects`. If a callback panics, the others are still freed, and the first panic goes on afterwards.
///
/// # Safety
/// As for [`Retired::free`], for each.
pub(crate) unsafe fn free_all(objects: Vec<Retired>) {
    // SAFETY: the caller's promise.
    for_each_despite_panics(objects.into_iter(), |retired| unsafe { retired.free() });
}

/// Calls `f` with each. If one call panics, the others are still made, and the first panic goes on afterwards.
pub(crate) fn for_each_despite_panics<T>(mut all: impl Iterator<Item = T>, mut f: impl FnMut(T)) {
    let mut go_on = || all.by_ref().for_each(&mut f);
    let Err(panic) = catch_unwind(AssertUnwindSafe(&mut go_on)) else { return };
    while let Err(another) = catch_unwind(AssertUnwindSafe(&mut go_on)) {
        discard(another);
    }
    resume_unwind(panic);
}

/// Drops the payload of a panic that goes no further, because the panic hook has reported it. Its destructor may
/// panic, too.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}
