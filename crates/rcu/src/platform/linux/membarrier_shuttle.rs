//! membarrier under shuttle, and a count of its calls.
//!
//! The counters are not shuttle's, so that they add no steps to a model. shuttle runs one thread at a time, so any
//! ordering would do.

use shuttle::sync::{RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicU64, Ordering};

shuttle::lazy_static! {
    static ref CPUS: RwLock<()> = RwLock::new(());
}

static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// As the kernel's: no section runs meanwhile.
pub(crate) fn barrier() -> bool {
    let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    drop(CPUS.write().unwrap());
    ENDED.fetch_max(number, Ordering::SeqCst);
    true
}

/// How many calls have begun so far, which is the number of the last one.
pub(crate) fn begun() -> u64 {
    BEGUN.load(Ordering::SeqCst)
}

/// The highest number of a call that has ended.
pub(crate) fn ended() -> u64 {
    ENDED.load(Ordering::SeqCst)
}

/// Keeps calls from running until the guard is dropped, as a section does.
pub(crate) fn keep_off() -> RwLockReadGuard<'static, ()> {
    CPUS.read().unwrap()
}
