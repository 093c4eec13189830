//! x86-64: wide sections around closures, and narrow ones around look-ups of a few loads.

pub(crate) mod copy;
pub(crate) mod narrow;
pub(crate) mod wide;

pub(super) use wide::disable;
pub(crate) use wide::{abandon_if_inside, abort_code, inside, run};
