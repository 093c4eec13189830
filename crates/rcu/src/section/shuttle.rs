//! Restartable sections under shuttle: a section and a call of membarrier exclude each other.
//!
//! A section that membarrier interrupts is started again, and so comes after the call; a section that has ended came
//! before it. So no section whose result counts overlaps a call, which is all that writers rely on. The model does not
//! show how far the interrupted run had come.
//!
//! Nesting is not modelled: the sections of the models are short and do not nest.

use crate::mode::is_asymmetric;
use crate::platform::membarrier;
use crate::section::{Packed, Refusal};
use crate::sync::AtomicU32;

/// Runs `f` between two calls of membarrier. `unsafe` because that of x86-64 is.
pub(crate) unsafe fn run<F: Fn() -> R, R: Copy>(
    mode: &AtomicU32,
    f: Packed<F>,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    let running = membarrier::keep_off();
    if is_asymmetric(mode) {
        return f.call();
    }
    drop(running);
    instead(Refusal::Fenced, f)
}
