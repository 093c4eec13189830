//! The guard of an epoch section, and how a restartable section falls back to one.

use crate::core::Core;
use crate::epoch;
use crate::reader_record::Record;
use crate::section::{self, Packed, Refusal};
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

/// An open section, which ends when this is dropped.
///
/// ```compile_fail
/// let domain = reprieve_rcu::Domain::default();
/// let cell = reprieve_rcu::RcuCell::in_domain(&domain, 1u64);
/// let guard = domain.lock();
/// let value = cell.load(&guard);
/// drop(guard);
/// println!("{value}"); // outlives its section
/// ```
#[must_use = "the section ends when the guard is dropped"]
pub struct Guard<'a> {
    record: &'a Record,
    core: &'a Core,
    /// Only one thread writes a reader's word.
    _thread: PhantomData<*mut ()>,
}

impl<'a> Guard<'a> {
    #[inline(always)]
    pub(crate) fn enter(record: &'a Record, core: &'a Core) -> Self {
        debug_assert!(!section::inside(), "an epoch section within a restartable one");
        epoch::enter(&record.word, &core.clock);
        Self { record, core, _thread: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        self.core
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if epoch::leave(&self.record.word) {
            self.record.answer_if_asked(&self.core.event);
        }
    }
}

/// Runs a restartable section's closure as an epoch section instead.
pub(crate) fn fall_back<'a, R, F: Fn() -> R>(
    core: &Core,
    why: Refusal,
    lock: impl FnOnce() -> Guard<'a>,
    f: Packed<F>,
) -> R {
    // Within another restartable section nothing may be written, so the outer one must fall back.
    section::abandon_if_inside();
    if why != Refusal::Fenced {
        core.fallbacks.fetch_add(1, Ordering::Relaxed);
    }
    let guard = lock();
    // If there is a section around it, that one may lend out references.
    let alone = epoch::is_outermost(guard.record.word.load(Ordering::Relaxed));
    guard.record.set_private(alone);
    let result = f.call();
    guard.record.set_private(false);
    result
}
