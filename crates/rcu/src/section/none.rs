//! Systems without restartable sections: nothing runs as one, and there is nothing to prepare. Functions are `unsafe` where
//! those of x86-64 are.

#[cfg(shuttle)]
#[path = "shuttle.rs"]
mod model;
#[cfg(shuttle)]
pub(crate) use model::run;

use super::Obstacle;
#[cfg(not(shuttle))]
use super::{Packed, Refusal};
#[cfg(not(shuttle))]
use crate::sync::AtomicU32;

#[cfg(not(shuttle))]
#[inline(always)]
pub(crate) unsafe fn run<F: Fn() -> R, R: Copy>(
    _mode: &AtomicU32,
    f: Packed<F>,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    instead(Refusal::Unavailable, f)
}

pub(crate) fn prepare(_in_any_case: bool) -> Result<(), Obstacle> {
    Err(Obstacle::Architecture)
}

pub(crate) fn disable() {}

pub(crate) fn register_thread() {}

pub(crate) fn unregister_thread() {}

pub(crate) fn inside() -> bool {
    false
}

pub(crate) fn abandon_if_inside() {}

pub(crate) mod copy {
    use crate::sync::AtomicU32;
    use std::sync::atomic::AtomicPtr;

    #[inline(always)]
    pub(crate) unsafe fn copied<T: Copy, P>(_: &AtomicU32, _: &AtomicPtr<P>, _: usize) -> Option<T> {
        None
    }
}
