//! What connects the daemon's threads: entries of rings, shared state, and sleeping threads.

mod entry;
mod shared;
mod status;

pub use entry::{Decision, Entry};
pub use shared::{Shared, Sleeper};
pub use status::Status;
