//! What connects the daemon's threads: entries of rings, shared state, and sleeping threads.

pub mod entry;
pub mod shared;
pub mod status;
