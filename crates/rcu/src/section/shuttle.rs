//! Restartable sections under shuttle: a section and a membarrier exclude each other.
//!
//! A section that membarrier finds is started again, and thus comes after it; one that ended came before it. So
//! no section that counts overlaps a membarrier, which is all that writers rely on. Where the abandoned run was
//! at the time, shuttle does not see.

use super::{Packed, Refusal};
use crate::mode::is_asymmetric;
use crate::sync::AtomicU32;
use shuttle::sync::RwLock;

shuttle::lazy_static! {
    static ref CPUS: RwLock<()> = RwLock::new(());
}

/// Runs `f` between two membarriers.
///
/// # Safety
/// None needed; the signature is that of the other architectures.
pub(crate) unsafe fn run<F: Fn() -> R, R: Copy>(
    mode: &AtomicU32,
    f: Packed<F>,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    let running = CPUS.read().unwrap();
    if is_asymmetric(mode) {
        return f.call();
    }
    drop(running);
    instead(Refusal::Fenced, f)
}

/// What the kernel does: no section runs meanwhile.
pub(crate) fn membarrier() {
    drop(CPUS.write().unwrap());
}

/// Nothing to switch off.
pub(crate) fn disable() {}

/// Not known: the models' sections are short, and do not nest.
pub(crate) fn inside() -> bool {
    false
}

/// As `inside`.
pub(crate) fn abandon_if_inside() {}

pub(crate) mod copy {
    use crate::sync::AtomicU32;
    use std::sync::atomic::AtomicPtr;

    /// Never copies.
    ///
    /// # Safety
    /// None needed; the signature is that of the other architectures.
    #[inline(always)]
    pub(crate) unsafe fn copied<T: Copy, P>(_: &AtomicU32, _: &AtomicPtr<P>, _: usize) -> Option<T> {
        None
    }
}
