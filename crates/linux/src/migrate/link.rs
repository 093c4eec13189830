//! What joins the daemon's threads: entries of the rings, shared state, threads that sleep.

pub mod entry;
pub mod shared;
pub mod status;
