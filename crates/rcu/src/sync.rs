//! The one switch between real atomics and those of a model checker.
//!
//! The protocol (tokens, epochs, modes) uses these names and no others, so that `--cfg loom` checks the code
//! that runs.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
