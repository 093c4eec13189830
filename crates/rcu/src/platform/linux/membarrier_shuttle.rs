//! membarrier under shuttle, and a count of its calls.
//!
//! The counters are not shuttle's, so that they add no step. Its threads run one at a time: SeqCst is for form's sake.

use shuttle::sync::{RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicU64, Ordering};

shuttle::lazy_static! {
    static ref CPUS: RwLock<()> = RwLock::new(());
}

static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// As that of the kernel.
pub(crate) fn barrier() -> bool {
    let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    drop(CPUS.write().unwrap());
    ENDED.fetch_max(number, Ordering::SeqCst);
    true
}

/// Calls that have begun so far; the number of the last.
pub(crate) fn begun() -> u64 {
    BEGUN.load(Ordering::SeqCst)
}

/// The highest number of a call that has ended.
pub(crate) fn ended() -> u64 {
    ENDED.load(Ordering::SeqCst)
}

/// Keeps calls from running until the guard is dropped: what a section does.
pub(crate) fn keep_off() -> RwLockReadGuard<'static, ()> {
    CPUS.read().unwrap()
}
