//! One retired object, and batches of them.

use crate::clock::now_ns;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

/// An object that waits for a grace period, and how it is then freed.
pub(crate) struct Retired {
    object: *mut (),
    free: unsafe fn(*mut ()),
    bytes: usize,
    /// By which address slots pin it; null where none does. Not a callback's: one that captures nothing has the address of
    /// any other.
    pinned_by: *mut (),
}

// SAFETY: only what may be sent is retired: `new` and `of_callback` demand it.
unsafe impl Send for Retired {}

impl Retired {
    /// An object that `free` frees.
    ///
    /// # Safety
    /// After the grace period, `free(object)` may be called once, by any thread.
    pub(crate) unsafe fn new<T: Send>(object: *mut T, bytes: usize, free: unsafe fn(*mut T)) -> Self {
        // SAFETY: the two function types differ in the type behind a thin pointer, which the calling
        // convention ignores.
        let free = unsafe { std::mem::transmute::<unsafe fn(*mut T), unsafe fn(*mut ())>(free) };
        Self { object: object.cast(), free, bytes, pinned_by: object.cast() }
    }

    /// An object from `Box::into_raw`, freed by dropping the box; it counts for its own size.
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

    /// A callback. Boxed: one allocation each.
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

    /// Whether a hazard slot pins it; `held` is sorted.
    pub(crate) fn is_held(&self, held: &[*mut ()]) -> bool {
        !self.pinned_by.is_null() && held.binary_search(&self.pinned_by).is_ok()
    }

    /// The same, pinned by another address than its own.
    pub(crate) fn pinned_by(self, address: *mut ()) -> Self {
        Self { pinned_by: address, ..self }
    }

    /// Frees the object.
    ///
    /// # Safety
    /// A grace period has passed since it was retired, and no slot pins it.
    pub(crate) unsafe fn free(self) {
        // SAFETY: `new`'s caller allowed it, and `self` is gone afterwards.
        unsafe { (self.free)(self.object) }
    }
}

/// Frees all of `objects`. A callback that panics keeps none of the others from being freed; the first panic
/// goes on afterwards.
///
/// # Safety
/// As for [`Retired::free`], for each.
pub(crate) unsafe fn free_all(objects: Vec<Retired>) {
    // SAFETY: the caller's promise.
    for_each_despite_panics(objects.into_iter(), |retired| unsafe { retired.free() });
}

/// Calls `f` with each. One that panics keeps none of the others from its call; the first panic goes on afterwards.
pub(crate) fn for_each_despite_panics<T>(mut all: impl Iterator<Item = T>, mut f: impl FnMut(T)) {
    let mut go_on = || all.by_ref().for_each(&mut f);
    let Err(panic) = catch_unwind(AssertUnwindSafe(&mut go_on)) else { return };
    while let Err(another) = catch_unwind(AssertUnwindSafe(&mut go_on)) {
        discard(another);
    }
    resume_unwind(panic);
}

/// Drops the payload of a panic that goes no further: the panic hook has reported it. Its destructor may panic too.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

/// An open batch: objects that have no token yet.
#[derive(Default)]
pub(crate) struct Bag {
    pub(crate) objects: Vec<Retired>,
    pub(crate) bytes: usize,
    pub(crate) opened_ns: u64,
}

impl Bag {
    pub(crate) fn push(&mut self, retired: Retired) {
        if self.objects.is_empty() {
            self.opened_ns = now_ns();
        }
        self.bytes += retired.bytes();
        self.objects.push(retired);
    }

    /// Takes the objects out, and makes room for as many more: not for as many as there ever were.
    pub(crate) fn take(&mut self) -> Vec<Retired> {
        self.bytes = 0;
        let capacity = self.objects.len();
        std::mem::replace(&mut self.objects, Vec::with_capacity(capacity))
    }
}

/// Objects that share a token.
pub(crate) struct Batch {
    pub(crate) token: u64,
    pub(crate) closed_ns: u64,
    pub(crate) objects: Vec<Retired>,
}

/// Closed batches in the order of their tokens, and what runs at the moment.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) batches: VecDeque<Batch>,
    /// Whether the last batch may take more objects, and with them a later token: no barrier has begun since it was added.
    open: bool,
    /// Objects whose grace period has passed, but that slots pin.
    pub(crate) held: Vec<Retired>,
    /// Threads that have objects in hand, by the phase in which they took them; see under_way.rs.
    pub(crate) running: [usize; 2],
    pub(crate) phase: usize,
}

impl Queue {
    /// Adds a batch in its place: a token is taken before its fence, so that a later one may be here already. It takes more
    /// objects only where it is `open`: nobody waits for its token as it is.
    pub(crate) fn add(&mut self, batch: Batch, open: bool) {
        let before = self.batches.iter().rposition(|b| b.token <= batch.token);
        let at = before.map_or(0, |before| before + 1);
        if at == self.batches.len() {
            self.open = open;
        }
        self.batches.insert(at, batch);
    }

    /// The last batch, if it may take more objects.
    pub(crate) fn open_batch(&mut self) -> Option<&mut Batch> {
        self.batches.back_mut().filter(|_| self.open)
    }

    /// No batch that is here takes more objects: a barrier waits for its token as it is.
    pub(crate) fn seal(&mut self) {
        self.open = false;
    }

    /// Counts a thread that takes objects in hand: the phase in which it does.
    pub(crate) fn begin(&mut self) -> usize {
        self.running[self.phase] += 1;
        self.phase
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn batches_stand_in_the_order_of_their_tokens() {
        let mut queue = Queue::default();
        let batch = |token| Batch { token, closed_ns: 0, objects: Vec::new() };
        for (token, open, is_open) in
            [(5, true, true), (3, false, true), (7, false, false), (3, true, false), (9, true, true)]
        {
            queue.add(batch(token), open);
            assert_eq!(queue.open_batch().is_some(), is_open, "{token}");
        }
        assert_eq!(queue.batches.iter().map(|b| b.token).collect::<Vec<_>>(), [3, 3, 5, 7, 9]);
        queue.seal();
        assert!(queue.open_batch().is_none());
    }

    #[test]
    fn a_bag_does_not_keep_the_room_of_a_burst() {
        let fill = |bag: &mut Bag, n| (0..n).for_each(|_| bag.push(Retired::of_callback(Box::new(|| ()), 0)));
        let mut bag = Bag::default();
        for n in [10_000, 64, 64] {
            fill(&mut bag, n);
            let taken = bag.take();
            assert_eq!(taken.len(), n);
            // SAFETY: nobody has seen them.
            unsafe { free_all(taken) };
        }
        fill(&mut bag, 64);
        assert!(bag.objects.capacity() < 200, "{}", bag.objects.capacity());
        // SAFETY: as above.
        unsafe { free_all(bag.take()) };
    }
}
