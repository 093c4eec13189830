//! Whether a domain's readers rely on membarrier or execute fences of their own, and the safe switch between the two.
//!
//! membarrier waits for every CPU that runs a thread of the process. In a virtual machine whose vCPU the hypervisor
//! has descheduled, that may take many milliseconds. While a thread calls membarrier for others (`fence/thread.rs`),
//! an adaptive domain therefore moves its readers to full fences; afterwards it moves them back.
//!
//! To fences: set the readers' mode, call membarrier, then set the writers' state. The writer that begins the switch asks
//! for the call and goes on; a writer that comes by after the call has ended sets the state. A restartable section reads
//! the mode after it is armed, so if it read "asymmetric" before the call, the call restarts it. An epoch section reads
//! the mode after it stored its word, so if it read "asymmetric" before the call, its word is visible after the call, and
//! a writer that then relies on its own fence finds it. Later sections read "fenced". Nobody waits for readers.
//!
//! Back to membarrier: set the state, execute a fence, then set the mode. A writer executes a fence before it reads
//! the state. If it read "fenced", its fence came before the switcher's fence, so every thread that sees the new mode
//! also sees the writer's unlink. A section that relies on membarrier therefore cannot miss the unlink of a writer
//! that did not call it.
//!
//! `model_tests.rs` checks both arguments exhaustively, on a model of a machine with store buffers.

use crate::fence::{self, Ticket};
use crate::futex::Lock;
use crate::options::Fencing;
use crate::sync::atomic::{AtomicU64, fence as full_fence};
use crate::sync::{AtomicU32, Ordering};
use crate::trace;

/// Readers' mode: writers execute the fence for them, by membarrier.
pub(crate) const ASYMMETRIC: u32 = 0;
/// Readers' mode: readers execute full fences, and restartable sections run as epoch sections.
pub(crate) const FENCED: u32 = 1;

/// Whether readers rely on membarrier.
#[inline(always)]
pub(crate) fn is_asymmetric(mode: &AtomicU32) -> bool {
    // Acquire pairs with the Release in `give_back`: a reader that sees the mode asymmetric sees all unlinks of
    // writers that did not call membarrier.
    mode.load(Ordering::Acquire) == ASYMMETRIC
}

/// The state machine of one domain.
pub(crate) struct Modes {
    /// What writers rely on. `ASYMMETRIC`: they call membarrier. `FENCED`: they do not.
    state: AtomicU32,
    adaptive: bool,
    /// While the domain switches to fences: the call after which the state may be set. Switches happen under this
    /// lock, one at a time.
    leaving: Lock<Option<Ticket>>,
    switches: AtomicU64,
}

impl Modes {
    /// Returns the state machine and the readers' first mode. Without membarrier a domain stays fenced.
    pub(crate) fn new(fencing: Fencing, membarrier: bool) -> (Self, u32) {
        let fenced = !membarrier || fencing == Fencing::Fenced;
        let mode = if fenced { FENCED } else { ASYMMETRIC };
        let adaptive = membarrier && fencing == Fencing::Adaptive;
        let (state, leaving) = (AtomicU32::new(mode), Lock::new(None));
        (Self { state, adaptive, leaving, switches: AtomicU64::new(0) }, mode)
    }

    /// Whether a writer must call membarrier. The caller must have executed a full fence since its unlink.
    pub(crate) fn writers_need_barrier(&self) -> bool {
        self.state.load(Ordering::SeqCst) != FENCED
    }

    /// Whether readers execute fences now or may do so later.
    pub(crate) fn may_be_fenced(&self) -> bool {
        self.adaptive || !self.writers_need_barrier()
    }

    /// How often the domain has switched, in either direction.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// Called by writers with each fence. Moves the domain one step towards fences while membarrier is `slow`, and
    /// one step back otherwise. `readers` is the readers' mode.
    pub(crate) fn observe(&self, readers: &AtomicU32, slow: bool) {
        if !self.adaptive {
            return;
        }
        let (state, mode) = (self.state.load(Ordering::SeqCst), readers.load(Ordering::SeqCst));
        let arrived = if slow { state == FENCED } else { mode == ASYMMETRIC };
        if arrived {
            return;
        }
        // Another thread is taking a step already, and one is enough.
        let Some(mut leaving) = self.leaving.try_lock() else { return };
        let switched = match (slow, *leaving) {
            _ if self.state.load(Ordering::SeqCst) == FENCED => !slow && self.give_back(readers),
            (true, None) => {
                *leaving = Some(Self::begin_to_leave(readers));
                false
            }
            (true, Some(ticket)) => ticket.is_served() && self.leave(&mut leaving),
            // The switch was not complete: writers have kept calling membarrier all the time, so nothing else must be
            // undone.
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

    /// For the child of a fork. Another thread may have been in the middle of a switch. The child's only thread
    /// starts again in asymmetric mode, because no other thread has stores under way.
    pub(crate) fn reset_after_fork(&self, readers: &AtomicU32) {
        // SAFETY: if another thread held the lock, it is in the parent.
        unsafe { self.leaving.reset_after_fork(None) };
        if self.adaptive {
            *self.leaving.lock() = None;
            self.state.store(ASYMMETRIC, Ordering::SeqCst);
            readers.store(ASYMMETRIC, Ordering::SeqCst);
        }
    }

    /// Moves the readers to fences. Returns the call after which writers may rely on these.
    fn begin_to_leave(readers: &AtomicU32) -> Ticket {
        // SeqCst, and before membarrier: see the text at the top of this file.
        readers.store(FENCED, Ordering::SeqCst);
        fence::ask()
    }

    /// Completes the switch to fences, after the call has ended. Returns true.
    fn leave(&self, leaving: &mut Option<Ticket>) -> bool {
        *leaving = None;
        self.state.store(FENCED, Ordering::SeqCst);
        self.switches.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Moves the readers back to membarrier. Returns true.
    fn give_back(&self, readers: &AtomicU32) -> bool {
        self.state.store(ASYMMETRIC, Ordering::SeqCst);
        // Pairs with the fence in `Core::order`: if a writer read the old state, everything after this fence sees the
        // writer's unlink.
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
