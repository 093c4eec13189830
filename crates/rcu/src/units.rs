//! Lengths of time in nanoseconds, by their names.

pub(crate) const MILLISECOND_NS: u64 = 1_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
