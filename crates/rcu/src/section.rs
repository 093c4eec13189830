//! Restartable sections: the mechanism, without domains.
//!
//! `restartable(mode, f)` runs `f` such that any interruption (preemption, migration, a signal, a writer's
//! membarrier) makes it start again from the beginning. So a descheduled reader holds no reference. A writer that
//! unlinks an object and calls membarrier may free it: the inter-processor interrupt restarts sections that are
//! running, descheduled sections restart when they resume, and later ones see the unlink.
//!
//! Invariants:
//! - The thread's `rseq_cs` field holds the address of our descriptor exactly while the thread is in a section. A
//!   section that starts within a section sees this. A signal handler does not, because the kernel clears the field
//!   before it delivers a signal.
//! - A section checks whether its domain permits it (`mode`) AFTER it is armed. A domain that stops using membarrier
//!   changes the mode and calls membarrier once. A section that read the old mode was armed at that time, so the call
//!   restarts it.
//! - A section ends with the store that clears the field. Its result counts only if the field still held our descriptor.
//!
//! Sources: rseq(2); Linux `kernel/rseq.c` for what the kernel checks. The wide range and the low stub page are our own.

// Not every architecture uses all of this.
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
#[path = "section/none.rs"]
mod arch;

mod obstacle;
mod packed;

pub(crate) use arch::{abandon_if_inside, inside, prepare, register_thread, unregister_thread};
pub use obstacle::Obstacle;
pub(crate) use packed::Packed;

use crate::sync::AtomicU32;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// After how many restarts a section gives up. With signals at 100 Hz a section of 10 ms would never end; and 64
/// tries of a section that is interrupted early cost less than one scheduler tick.
const RESTART_LIMIT: u64 = 64;
/// After how many foreign changes of the rseq field restartable sections are switched off.
const FOREIGN_LIMIT: u64 = 16;

/// Restarts of all sections of the process.
pub(crate) static RESTARTS: AtomicU64 = AtomicU64::new(0);
/// How many sections found that foreign code had changed their rseq field.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

/// Why a section did not run to its end. The caller then runs it as an epoch section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not available on this machine or thread, not probed yet, or switched off.
    Unavailable,
    /// The domain's readers execute fences at the moment.
    Fenced,
    /// It was restarted too often.
    GaveUp,
    /// Foreign code changed the rseq field, so the section was not protected to its end.
    Foreign,
}

/// Runs `f` restartably if the machine and `mode` permit it. Otherwise calls `instead` with the reason.
///
/// # Safety
/// `f` may be abandoned at any instruction and run again, and its locals are then never dropped. It must not make
/// system calls, allocate, free, lock, unwind, or write what other code can see. It may store to a place of its own
/// that every run overwrites.
#[inline(always)]
pub(crate) unsafe fn restartable<F: Fn() -> R, R: Copy>(
    mode: &AtomicU32,
    f: &F,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    // SAFETY: the caller's promise is the same. `f` outlives the call. `instead` cannot keep the copy, because
    // `Packed` is private to this crate and used within `instead` alone.
    unsafe { arch::run(mode, Packed::of(f), instead) }
}

/// A copy of the `T` that lies `offset` bytes into what `place` points to, taken in a restartable section without a
/// closure. None if such a section is not possible.
///
/// # Safety
/// In a section of a domain with this mode, `place` points to an object that is alive and has a `T` at that offset.
#[inline(always)]
pub(crate) unsafe fn copied<T: Copy, P>(mode: &AtomicU32, place: &AtomicPtr<P>, offset: usize) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { arch::copy::copied(mode, place, offset) }
}

/// Counts a foreign change. Beyond the limit, switches restartable sections off.
#[cold]
pub(crate) fn count_foreign() {
    if FOREIGN.fetch_add(1, Ordering::Relaxed) + 1 >= FOREIGN_LIMIT {
        arch::disable();
    }
}

/// Whether restartable sections were switched off because of foreign code.
pub(crate) fn disabled_by_foreign_code() -> bool {
    FOREIGN.load(Ordering::Relaxed) >= FOREIGN_LIMIT
}

/// How many restarts there were so far, in the whole process.
pub(crate) fn restarts() -> u64 {
    RESTARTS.load(Ordering::Relaxed)
}

/// How many foreign changes there were so far, in the whole process.
pub(crate) fn foreign() -> u64 {
    FOREIGN.load(Ordering::Relaxed)
}
