//! Finds tasks that do I/O, and filters those that may be managed.

#[cfg(feature = "ebpf")]
mod ebpf;
mod filter;
mod io_events;
mod scan;
mod source;

pub use filter::{Condition, Filter, may_lock_all, may_move_all};
pub use io_events::{Events, IoEvent, IoKind, Sorter};
pub use scan::{Found, Scan};
pub use source::{Sampler, Source};
