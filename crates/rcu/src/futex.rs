//! Sleeping and waking, and the small lock built on them.
//!
//! The lock is not `std::sync::Mutex` for two reasons. The fork handler must take locks in the parent before the fork
//! and release them in both processes after it, which needs separate `acquire` and `release`. And no panic happens
//! under the lock, so poisoning would only be noise. The algorithm is mutex2 of Drepper, "Futexes Are Tricky" (2011).

use crate::sync::atomic::{AtomicU32, Ordering};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

#[cfg(not(shuttle))]
pub(crate) use crate::platform::{wait, wake};

#[cfg(shuttle)]
#[path = "futex/shuttle.rs"]
mod model;
#[cfg(shuttle)]
pub(crate) use model::{wait, wake};

/// Wakes all threads that sleep on `event`.
pub(crate) fn announce(event: &AtomicU32) {
    // SeqCst, against the sleeper, which reads the event before it looks at the state that it waits for.
    event.fetch_add(1, Ordering::SeqCst);
    wake(event, i32::MAX);
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A lock whose holder does little: under it there are no drops, no callbacks and no system calls but the lock's own.
#[derive(Default)]
pub(crate) struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the value, one thread at a time. So sharing the lock moves the value
// between threads, which is what `T: Send` allows.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.acquire();
        Held(self)
    }

    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        // Lazily, because dropping a guard releases the lock, also one that another thread holds.
        self.try_acquire().then(|| Held(self))
    }

    // Acquire pairs with the Release in `release`: the holder sees what earlier holders wrote.
    fn try_acquire(&self) -> bool {
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock without a guard, for the fork handler.
    pub(crate) fn acquire(&self) {
        if self.try_acquire() {
            return;
        }
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            wait(&self.state, CONTENDED, None);
        }
    }

    /// Releases what `acquire` took.
    ///
    /// # Safety
    /// The caller holds the lock and no `Held` for it exists.
    pub(crate) unsafe fn release(&self) {
        if self.state.swap(FREE, Ordering::Release) == CONTENDED {
            wake(&self.state, 1);
        }
    }

    /// The value without a guard, for the fork handler.
    ///
    /// # Safety
    /// Nobody writes the value meanwhile: the caller holds the lock, or is the only thread.
    pub(crate) unsafe fn peek(&self) -> &T {
        // SAFETY: the caller's promise.
        unsafe { &*self.value.get() }
    }

    /// Frees the lock, whoever held it. If somebody was writing the value, `value` takes its place, and the old value
    /// is not dropped.
    ///
    /// # Safety
    /// The holder is in another process: the caller is the child of a fork.
    pub(crate) unsafe fn reset_after_fork(&self, value: T) {
        if self.state.swap(FREE, Ordering::Relaxed) != FREE {
            // SAFETY: nobody in this process has a guard. Writing does not read the old value.
            unsafe { self.value.get().write(value) };
        }
    }
}

/// The right to use the value of a `Lock`. Releases the lock when dropped.
pub(crate) struct Held<'a, T>(&'a Lock<T>);

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one that exists, so nobody writes the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one that exists, and is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this guard proves that the lock is held, and ends here.
        unsafe { self.0.release() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_excludes() {
        let lock = Lock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "the first try left it held");
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_fork_replaces_what_was_being_written() {
        let lock = Lock::new(Box::new(1));
        // SAFETY: no guard is used from here on.
        unsafe { lock.reset_after_fork(Box::new(2)) };
        assert_eq!(**lock.lock(), 1, "nobody held it");
        let held = std::mem::ManuallyDrop::new(lock.lock());
        // SAFETY: a valid value, which `reset_after_fork` does not drop.
        let old = unsafe { std::ptr::from_ref(&**held).read() };
        // SAFETY: as above.
        unsafe { lock.reset_after_fork(Box::new(3)) };
        assert_eq!((*old, **lock.lock()), (1, 3));
    }

    #[test]
    fn wait_returns_at_its_timeout_and_when_the_value_differs() {
        let word = AtomicU32::new(7);
        wait(&word, 8, None);
        wait(&word, 7, Some(1_000));
    }
}
