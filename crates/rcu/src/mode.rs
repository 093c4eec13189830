//! Whether a domain's readers rely on membarrier or execute fences of their own, and the safe switch between
//! the two.
//!
//! membarrier waits for every CPU that runs a thread of the process. In a virtual machine whose vCPU the
//! hypervisor has descheduled that may take many milliseconds. An adaptive domain then moves its readers to
//! full fences, and back: while a thread calls membarrier for others (`fence/thread.rs`).
//!
//! Leaving: the readers' mode is set, then membarrier is called, then the writers' state is set. The writer that begins it
//! asks for the call and goes on; one that comes by when the call has ended sets the state. A
//! restartable section reads the mode after it is armed: one that read "asymmetric" before that call is
//! started again by it. An epoch section reads the mode after it stored its word: one that read "asymmetric"
//! before the call has its word visible after it, so that a writer which then relies on its own fence finds
//! it. Later sections read "fenced". Nobody waits for readers.
//!
//! Returning: the state is set first, then a fence, then the mode. A writer executes a fence before it reads
//! the state. If it read "fenced" its fence came before the switcher's, so its unlink is visible to whoever
//! sees the new mode: a section that relies on membarrier cannot have missed an unlink of a writer that did
//! not call it.
//!
//! `model_tests.rs` checks both arguments, exhaustively, on a machine with store buffers.

use crate::fence::{self, Ticket};
use crate::futex::Lock;
use crate::options::Fencing;
use crate::sync::atomic::{AtomicU64, fence as full_fence};
use crate::sync::{AtomicU32, Ordering};
use crate::trace;

/// Readers' mode: writers execute the fence for them.
pub(crate) const ASYMMETRIC: u32 = 0;
/// Readers' mode: readers execute full fences, restartable sections run as epochs.
pub(crate) const FENCED: u32 = 1;

/// Whether readers rely on membarrier.
#[inline(always)]
pub(crate) fn is_asymmetric(mode: &AtomicU32) -> bool {
    // Acquire pairs with the Release in `give_back`: who sees the mode asymmetric sees all unlinks of writers
    // that did not call membarrier.
    mode.load(Ordering::Acquire) == ASYMMETRIC
}

/// The state machine of one domain.
pub(crate) struct Modes {
    /// What writers rely on: `ASYMMETRIC`, they call membarrier; `FENCED`, they do not.
    state: AtomicU32,
    adaptive: bool,
    /// While the domain leaves: the call after which the state may be set. Transitions are made with the lock held, one at
    /// a time.
    leaving: Lock<Option<Ticket>>,
    switches: AtomicU64,
}

impl Modes {
    /// The state machine and the readers' first mode. Without membarrier a domain is fenced for ever.
    pub(crate) fn new(fencing: Fencing, membarrier: bool) -> (Self, u32) {
        let fenced = !membarrier || fencing == Fencing::Fenced;
        let mode = if fenced { FENCED } else { ASYMMETRIC };
        let adaptive = membarrier && fencing == Fencing::Adaptive;
        let (state, leaving) = (AtomicU32::new(mode), Lock::new(None));
        (Self { state, adaptive, leaving, switches: AtomicU64::new(0) }, mode)
    }

    /// Whether a writer must call membarrier. The caller has executed a full fence since its unlink.
    pub(crate) fn writers_need_barrier(&self) -> bool {
        self.state.load(Ordering::SeqCst) != FENCED
    }

    /// Whether readers execute fences, now or at another time.
    pub(crate) fn may_be_fenced(&self) -> bool {
        self.adaptive || !self.writers_need_barrier()
    }

    /// How often the domain has switched, either way.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// Called by writers with each fence. Moves the domain a step towards where it should be: fenced while membarrier is
    /// `slow`.
    pub(crate) fn observe(&self, readers: &AtomicU32, slow: bool) {
        if !self.adaptive {
            return;
        }
        let (state, mode) = (self.state.load(Ordering::SeqCst), readers.load(Ordering::SeqCst));
        let arrived = if slow { state == FENCED } else { mode == ASYMMETRIC };
        if arrived {
            return;
        }
        // Somebody else is at it: their step will do.
        let Some(mut leaving) = self.leaving.try_lock() else { return };
        let switched = match (slow, *leaving) {
            _ if self.state.load(Ordering::SeqCst) == FENCED => !slow && self.give_back(readers),
            (true, None) => {
                *leaving = Some(Self::begin_to_leave(readers));
                false
            }
            (true, Some(ticket)) => ticket.is_served() && self.leave(&mut leaving),
            // It was never left completely: writers have called membarrier all the time.
            (false, _) => {
                *leaving = None;
                readers.store(ASYMMETRIC, Ordering::Release);
                false
            }
        };
        drop(leaving);
        if switched {
            trace::switched(slow);
        }
    }

    /// In the child of a fork. A transition that another thread was in may be anywhere; the child's only
    /// thread starts anew, asymmetric: no other thread's stores can be under way.
    pub(crate) fn reset_after_fork(&self, readers: &AtomicU32) {
        // SAFETY: whoever holds the lock is in the parent.
        unsafe { self.leaving.reset_after_fork(None) };
        if self.adaptive {
            *self.leaving.lock() = None;
            self.state.store(ASYMMETRIC, Ordering::SeqCst);
            readers.store(ASYMMETRIC, Ordering::SeqCst);
        }
    }

    /// Moves the readers to fences: the call after which writers may rely on them.
    fn begin_to_leave(readers: &AtomicU32) -> Ticket {
        // SeqCst, before membarrier: see the module's text.
        readers.store(FENCED, Ordering::SeqCst);
        fence::ask()
    }

    /// The call has ended. True.
    fn leave(&self, leaving: &mut Option<Ticket>) -> bool {
        *leaving = None;
        self.state.store(FENCED, Ordering::SeqCst);
        self.switches.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Moves the readers back. True.
    fn give_back(&self, readers: &AtomicU32) -> bool {
        self.state.store(ASYMMETRIC, Ordering::SeqCst);
        // Pairs with the fence in `Core::order`: a writer that read the state before it was changed has its
        // unlink visible to everything after this fence.
        full_fence(Ordering::SeqCst);
        // Release pairs with the Acquire in `is_asymmetric`.
        readers.store(ASYMMETRIC, Ordering::Release);
        self.switches.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Switches at once, for tests under load.
    #[cfg(test)]
    pub(crate) fn force(&self, readers: &AtomicU32, mode: u32) {
        let mut leaving = self.leaving.lock();
        match self.state.load(Ordering::SeqCst) {
            ASYMMETRIC if mode == FENCED => {
                readers.store(FENCED, Ordering::SeqCst);
                fence::barrier().expect("membarrier is allowed");
                self.leave(&mut leaving);
            }
            FENCED if mode == ASYMMETRIC => drop(self.give_back(readers)),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "mode_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "model_tests.rs"]
mod model;
