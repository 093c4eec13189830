//! Linux with 64-bit pointers: system calls and the C library.
//!
//! 32-bit Linux, x32 included, takes the portable half: there the layout of a futex's timeout depends on the C library.

#[cfg(not(any(shuttle, loom)))]
pub(crate) mod cpus;
#[cfg(not(shuttle))]
mod futex;
pub(crate) mod membarrier;
mod memory;
mod pin;
mod process;
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
mod restartable;
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
pub(crate) mod rseq;
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
mod stub;
mod time;

#[cfg(not(shuttle))]
pub(crate) use futex::{wait, wake};
pub(crate) use memory::ask_for_huge_pages;
pub(crate) use pin::keep_loaded;
#[cfg(not(shuttle))]
pub(crate) use process::thread_id;
pub(crate) use process::{at_fork, spawn, thread_name};
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
pub(crate) use restartable::prepare_sections;
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
pub(crate) use rseq::{register_thread, unregister_thread};
#[cfg(not(any(shuttle, loom)))]
pub(crate) use time::{Executed, thread_cpu_ns};
pub(crate) use time::{cpu_ns_of, now_ns};

/// Nothing to register.
#[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
pub(crate) fn register_thread() {}

/// Nothing to unregister.
#[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
pub(crate) fn unregister_thread() {}

/// There is no entry for this architecture.
#[cfg(not(all(target_arch = "x86_64", not(shuttle))))]
pub(crate) fn prepare_sections(_in_any_case: bool) -> Result<(), super::Obstacle> {
    Err(super::Obstacle::Architecture)
}
