//! The hazard slot that a thread keeps in a domain, to pin one value for as long as a closure runs.
//!
//! Taking a slot from the domain's pool needs a lock. A thread therefore takes one at its first use of the domain,
//! and gives it back when it ends.
//!
//! Invariant: a slot that is kept has one user at a time (`hazard::Cell::claim`). A second user on the same thread is
//! a closure within the closure, or a signal handler. It gets no slot, and reads in an ordinary section instead.

use super::{BUSY, MINE, Owned, known_in, remember, with_mine};
use crate::core::Core;
use crate::hazard;
#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::thread_local;
use std::cell::Cell;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

thread_local! {
    /// The slot used last: null, or one of the list. It has no destructor, and so is usable for as long as the thread
    /// lives.
    static LAST: Cell<*const Owned<hazard::Cell>> = const { Cell::new(ptr::null()) };
}

/// The thread's slot, in use until this is dropped.
pub(crate) struct Claimed<'c>(&'c hazard::Cell);

impl Deref for Claimed<'_> {
    type Target = hazard::Cell;
    #[inline(always)]
    fn deref(&self) -> &hazard::Cell {
        self.0
    }
}

impl Drop for Claimed<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.unclaim();
    }
}

/// The calling thread's slot in `core`'s domain. None while it is in use further down the stack, or if the domain is at its
/// limit of slots.
#[inline(always)]
pub(crate) fn claim(core: &Arc<Core>) -> Option<Claimed<'_>> {
    claim_by(core, find)
}

/// As `claim`, for a caller that may be a signal handler on a thread that has promised nothing: also none if the thread
/// has no slot yet.
#[inline(always)]
pub(crate) fn claim_known(core: &Arc<Core>) -> Option<Claimed<'_>> {
    claim_by(core, find_known)
}

#[inline(always)]
fn claim_by(core: &Arc<Core>, find: impl FnOnce(&Arc<Core>) -> Option<&hazard::Cell>) -> Option<Claimed<'_>> {
    // SAFETY: it is null, or in the thread's list. `core` owns the pool of the entry, and is borrowed for as long as the
    // result.
    let slot: &hazard::Cell = match unsafe { LAST.get().as_ref() } {
        // SAFETY: as above.
        Some(last) if Arc::ptr_eq(&last.core, core) => unsafe { last.entry.get() },
        _ => find(core)?,
    };
    // Lazily, because dropping a `Claimed` ends the claim, also one that was not this caller's.
    slot.claim().then(|| Claimed(slot))
}

#[cold]
#[inline(never)]
fn find_known(core: &Arc<Core>) -> Option<&hazard::Cell> {
    if BUSY.get() || MINE.get().is_null() {
        return None;
    }
    let known = with_mine(|mine| known_in(&mine.slots, core))?;
    LAST.set(known);
    // SAFETY: as in `find`.
    Some(unsafe { (*known).entry.get() })
}

/// Takes a slot for the calling thread, if it has none and one is left.
pub(super) fn keep(core: &Arc<Core>) {
    find(core);
}

#[cold]
#[inline(never)]
fn find(core: &Arc<Core>) -> Option<&hazard::Cell> {
    // This is a signal handler that interrupted a user of the list.
    if BUSY.get() {
        return None;
    }
    let known = match with_mine(|mine| known_in(&mine.slots, core)) {
        Some(known) => known,
        None => remember(core, core.hazards.take(core.limit_slots)?, |mine| &mut mine.slots),
    };
    LAST.set(known);
    // SAFETY: the list holds it, and `core`, which owns the pool of the entry, is borrowed for as long as the result.
    Some(unsafe { (*known).entry.get() })
}

/// Makes the next call look the slot up again.
pub(super) fn forget_last() {
    LAST.set(ptr::null());
}

/// Gives a slot back as its thread ends. A slot in use stays as it is: its user was abandoned, and what it pins may
/// still be read.
pub(super) fn give_back(owned: &Owned<hazard::Cell>) {
    // SAFETY: `owned.core` keeps the pool alive.
    let slot: &hazard::Cell = unsafe { owned.entry.get() };
    if !slot.is_claimed() {
        owned.core.hazards.give(owned.entry);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Domain;

    #[test]
    fn the_last_slot_is_forgotten_with_its_domain() {
        std::thread::spawn(|| {
            let domain = Domain::default();
            drop(claim(domain.core()).expect("a slot"));
            assert!(!LAST.get().is_null());
            drop(domain);
            // Another domain's first section takes out what is remembered of closed domains.
            drop(Domain::default().lock());
            assert!(LAST.get().is_null());
        })
        .join()
        .unwrap();
    }
}
