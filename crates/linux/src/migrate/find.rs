//! Which tasks do I/O, and which of them may be managed.

#[cfg(feature = "ebpf")]
pub mod ebpf;
pub mod filter;
pub mod io_events;
pub mod scan;
pub mod source;
