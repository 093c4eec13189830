//! Lengths of time in nanoseconds, by name.

pub(crate) const MILLISECOND_NS: u64 = 1_000_000;
#[allow(dead_code, reason = "not every system uses it")]
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
