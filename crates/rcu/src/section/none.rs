//! Architectures without an entry for restartable sections.

use super::{Packed, Refusal};
use crate::sync::AtomicU32;

/// Never runs `f`.
///
/// # Safety
/// None needed; the signature is that of the other architectures.
#[inline(always)]
pub(crate) unsafe fn run<F: Fn() -> R, R: Copy>(
    _mode: &AtomicU32,
    f: Packed<F>,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    instead(Refusal::Unavailable, f)
}

/// Nothing to switch off.
pub(crate) fn disable() {}

/// There are no sections.
pub(crate) fn inside() -> bool {
    false
}

/// There are no sections.
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
