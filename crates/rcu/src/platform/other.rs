//! Every other system: the standard library alone.
//!
//! No membarrier, so readers execute fences and no section is restartable; see `Capabilities`. Beyond that:
//! - a sleeper's queue has a lock of `std`, so signal handlers must not read;
//! - the child of a fork must not use domains of its parent;
//! - thread ids are numbers of this crate.

#[cfg(not(shuttle))]
mod futex;
pub(crate) mod membarrier;
#[cfg(not(shuttle))]
mod thread;
mod time;

#[cfg(not(shuttle))]
pub(crate) use futex::{wait, wake};
#[cfg(not(shuttle))]
pub(crate) use thread::thread_id;
pub(crate) use time::{cpu_ns_of, now_ns};

/// Nothing to ask.
///
/// # Safety
/// None needed; the signature is that of Linux.
pub(crate) unsafe fn ask_for_huge_pages(_base: *mut u8, _bytes: usize) {}

/// There is no portable way to keep a library loaded.
pub(crate) fn keep_loaded() {}

/// Forks go unnoticed.
pub(crate) fn at_fork(_before: extern "C" fn(), _in_parent: extern "C" fn(), _in_child: extern "C" fn()) {}

/// The calling thread's name.
pub(crate) fn thread_name() -> Option<String> {
    std::thread::current().name().map(str::to_owned)
}

/// Starts a thread that is joined by nobody.
pub(crate) fn spawn(name: &str, run: fn()) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
