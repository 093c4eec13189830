//! Restartable sections: the mechanism, without domains.
//!
//! `restartable(mode, f)` runs `f` such that whatever interrupts it (preemption, migration, a signal, a
//! writer's membarrier) makes it start again from the beginning. A descheduled reader therefore holds no
//! reference, and a writer that unlinks an object and calls membarrier may free it: sections that ran are
//! started again by the inter-processor interrupt, those that were descheduled start again when they resume,
//! and later ones see the unlink.
//!
//! Invariants:
//! - The thread's `rseq_cs` field holds the address of our descriptor exactly while the thread is in a
//!   section. Hence a section that starts within a section sees it, and a signal handler does not: the kernel
//!   clears the field before it delivers a signal.
//! - A section decides whether its domain permits it (`mode`) AFTER it is armed. A domain that stops using
//!   membarrier changes the mode and calls membarrier once: a section that read the old mode was armed when
//!   it did, and is started again.
//! - A section ends with the store that clears the field. Its result counts if the field still held our
//!   descriptor.
//!
//! Sources: rseq(2), Linux `kernel/rseq.c` for what the kernel checks; the wide range and the low stub page
//! are ours.

// What only the entry of an architecture uses.
#![cfg_attr(
    not(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_pointer_width = "64",
        not(any(shuttle, reprieve_fallback))
    )),
    allow(dead_code)
)]

#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(shuttle, reprieve_fallback))
))]
pub(crate) mod x86_64;
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(shuttle, reprieve_fallback))
))]
pub(crate) use x86_64 as arch;
#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(shuttle, reprieve_fallback))
)))]
mod none;
#[cfg(not(any(
    all(
        target_os = "linux",
        target_arch = "x86_64",
        target_pointer_width = "64",
        not(any(shuttle, reprieve_fallback))
    ),
    shuttle
)))]
use none as arch;
#[cfg(shuttle)]
#[path = "section/shuttle.rs"]
mod arch;

mod obstacle;
mod packed;

pub(crate) use arch::{abandon_if_inside, inside, prepare, register_thread, unregister_thread};
pub use obstacle::Obstacle;
pub(crate) use packed::Packed;

use crate::sync::AtomicU32;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// How often a section is started again before it gives up: at 100 Hz signals a section of 10 ms never ends,
/// and 64 tries of a section that short-lived signals interrupt cost less than one scheduler tick.
const RESTART_LIMIT: u64 = 64;
/// Foreign changes of the rseq field that are put up with before restartable sections are switched off.
const FOREIGN_LIMIT: u64 = 16;

/// Restarts of all sections of the process.
pub(crate) static RESTARTS: AtomicU64 = AtomicU64::new(0);
/// Sections whose rseq field foreign code had changed.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

/// Why a section did not run to its end. The caller runs it again as a pinned epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not available on this machine or thread, not probed yet, or switched off.
    Unavailable,
    /// The domain's readers use fences at the moment.
    Fenced,
    /// Started again too often.
    GaveUp,
    /// Foreign code changed the rseq field: the section was not protected to its end.
    Foreign,
}

/// Runs `f` restartably where the machine and `mode` permit it; else calls `instead` with why not.
///
/// # Safety
/// `f` may be abandoned at any instruction and run again, and its locals are then never dropped. It must not
/// make system calls, allocate, free, lock, unwind, or write what others can see; stores to a place of its
/// own that every run overwrites are the exception.
#[inline(always)]
pub(crate) unsafe fn restartable<F: Fn() -> R, R: Copy>(
    mode: &AtomicU32,
    f: &F,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    // SAFETY: the caller's promise is the same; `f` outlives the call, and `instead` cannot keep the copy, which is
    // private to this crate and used within `instead` alone.
    unsafe { arch::run(mode, Packed::of(f), instead) }
}

/// A copy of the `T` that lies `offset` bytes into what `place` points to, taken in a restartable section without a closure.
/// None where that cannot be.
///
/// # Safety
/// In a section of a domain with this mode, `place` points to an object that is alive, and that has a `T` there.
#[inline(always)]
pub(crate) unsafe fn copied<T: Copy, P>(mode: &AtomicU32, place: &AtomicPtr<P>, offset: usize) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { arch::copy::copied(mode, place, offset) }
}

/// Counts a foreign change; beyond the limit, switches restartable sections off.
#[cold]
pub(crate) fn count_foreign() {
    if FOREIGN.fetch_add(1, Ordering::Relaxed) + 1 >= FOREIGN_LIMIT {
        arch::disable();
    }
}

/// Whether foreign code made us switch off.
pub(crate) fn disabled_by_foreign_code() -> bool {
    FOREIGN.load(Ordering::Relaxed) >= FOREIGN_LIMIT
}

/// Restarts so far, of the process.
pub(crate) fn restarts() -> u64 {
    RESTARTS.load(Ordering::Relaxed)
}

/// Foreign changes so far, of the process.
pub(crate) fn foreign() -> u64 {
    FOREIGN.load(Ordering::Relaxed)
}

#[cfg(all(
    test,
    not(loom),
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(shuttle, reprieve_fallback))
))]
#[path = "section_tests.rs"]
mod tests;
