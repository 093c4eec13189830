//! Restartable sections on x86-64: wide ones around closures, and narrow ones around look-ups of a few loads.

pub(crate) mod copy;
pub(crate) mod narrow;
mod prepare;
pub(super) mod rseq;
mod stub;
pub(crate) mod wide;

pub(crate) use prepare::prepare;
pub(crate) use rseq::{register_thread, unregister_thread};
pub(super) use wide::disable;
pub(crate) use wide::{abandon_if_inside, inside, run};
