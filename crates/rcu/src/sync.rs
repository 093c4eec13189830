//! The one switch between real primitives and those of a model checker.
//!
//! The protocol (tokens, epochs, modes) takes its atomics from here, so that `--cfg loom` checks the very code that
//! runs, under the C++ memory model. What is built on the protocol (registration, slots, retiring, reclaiming,
//! sleeping) takes them from [`atomic`]: `--cfg shuttle` checks all of it, assuming sequential consistency.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Atomics that loom does not see: statics, which it cannot have, and everything beyond the protocol.
#[cfg(not(shuttle))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::*;
}
#[cfg(shuttle)]
pub(crate) mod atomic {
    pub(crate) use shuttle::sync::atomic::*;
}

#[cfg(not(shuttle))]
pub(crate) use std::{thread::yield_now, thread_local};

#[cfg(shuttle)]
pub(crate) use shuttle::{thread::yield_now, thread_local};

/// What `std` offers for cells in thread-local variables and shuttle does not.
#[cfg(shuttle)]
pub(crate) trait LocalCell<T> {
    fn get(&'static self) -> T;
    fn set(&'static self, value: T);
    fn replace(&'static self, value: T) -> T;
}

#[cfg(shuttle)]
impl<T: Copy> LocalCell<T> for shuttle::thread::LocalKey<std::cell::Cell<T>> {
    fn get(&'static self) -> T {
        self.with(std::cell::Cell::get)
    }
    fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }
    fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}
