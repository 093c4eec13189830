//! Every system other than 64-bit Linux, by the standard library alone.
//!
//! There is no membarrier, so readers execute fences and no section is restartable; see `Capabilities`. Also:
//! - a sleeper's queue has a lock of `std`, so signal handlers must not read;
//! - the child of a fork must not use domains of its parent;
//! - thread ids are numbers that this crate assigns.

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

/// Does nothing: there is no portable advice of this kind.
///
/// # Safety
/// None needed; the signature is that of Linux.
pub(crate) unsafe fn ask_for_huge_pages(_base: *mut u8, _bytes: usize) {}

/// Does nothing: there is no portable way to keep a library loaded.
pub(crate) fn keep_loaded() {}

/// Does nothing: forks go unnoticed.
pub(crate) fn at_fork(_before: extern "C" fn(), _in_parent: extern "C" fn(), _in_child: extern "C" fn()) {}

/// The calling thread's name.
pub(crate) fn thread_name() -> Option<String> {
    std::thread::current().name().map(str::to_owned)
}

/// Starts a thread that nobody joins.
pub(crate) fn spawn(name: &str, run: fn()) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
