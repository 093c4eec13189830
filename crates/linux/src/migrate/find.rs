//! Finds tasks that do I/O, and filters those that may be managed.

#[cfg(feature = "ebpf")]
pub mod ebpf;
pub mod filter;
pub mod io_events;
pub mod scan;
pub mod source;
