//! Linux with 64-bit pointers: system calls and the C library.
//!
//! 32-bit Linux, including x32, uses the portable half: there the layout of a futex's timeout depends on the C library.

#[cfg(not(any(shuttle, loom)))]
pub(crate) mod cpus;
#[cfg(not(shuttle))]
mod futex;
pub(crate) mod membarrier;
mod memory;
mod pin;
mod process;
mod time;

#[cfg(not(shuttle))]
pub(crate) use futex::{wait, wake};
pub(crate) use memory::ask_for_huge_pages;
pub(crate) use pin::keep_loaded;
#[cfg(not(shuttle))]
pub(crate) use process::thread_id;
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
pub(crate) use process::without_signals;
pub(crate) use process::{at_fork, spawn, thread_name};
#[cfg(not(any(shuttle, loom)))]
pub(crate) use time::{Executed, thread_cpu_ns};
pub(crate) use time::{cpu_ns_of, now_ns};
