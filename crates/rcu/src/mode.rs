//! Whether a domain's readers rely on membarrier or execute fences of their own, and the safe switch between
//! the two.
//!
//! membarrier waits for every CPU that runs a thread of the process. In a virtual machine whose vCPU the
//! hypervisor has descheduled that may take many milliseconds. An adaptive domain then moves its readers to
//! full fences, and back; `latency.rs` decides when.
//!
//! Leaving: the readers' mode is set, then membarrier is called, then the writers' state is set. A
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

use crate::clock;
use crate::core::Core;
use crate::fence::{self, Complete, NoFence};
use crate::futex::Lock;
use crate::latency::Latencies;
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
    /// Limit on membarrier's latency; none when the domain never switches.
    above_ns: Option<u64>,
    /// What is known of membarrier's latency. Transitions are made with the lock held, one at a time.
    switch: Lock<Latencies>,
    switches: AtomicU64,
}

impl Modes {
    /// The state machine and the readers' first mode. Without membarrier a domain is fenced for ever.
    pub(crate) fn new(fencing: Fencing, membarrier: bool) -> (Self, u32) {
        let fenced = !membarrier || fencing == Fencing::Fenced;
        let above_ns = match fencing {
            Fencing::Adaptive { above_ns } if membarrier => Some(above_ns),
            _ => None,
        };
        let mode = if fenced { FENCED } else { ASYMMETRIC };
        let state = AtomicU32::new(mode);
        let switch = Lock::new(Latencies::new(above_ns.unwrap_or(0)));
        let modes = Self { state, above_ns, switch, switches: AtomicU64::new(0) };
        (modes, mode)
    }

    /// Whether a writer must call membarrier. The caller has executed a full fence since its unlink.
    pub(crate) fn writers_need_barrier(&self) -> bool {
        self.state.load(Ordering::SeqCst) != FENCED
    }

    /// How often the domain has switched, either way.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// Calls membarrier. Returns the fence, and how long the caller waited for it, in nanoseconds. Of a wait beyond
    /// the limit only the time counts that the caller executed: it waits for other CPUs actively, and time in which
    /// it was itself descheduled says nothing about them.
    pub(crate) fn barrier(&self) -> Result<(Complete, u64), NoFence> {
        let executed_ns = self.above_ns.map(|above_ns| (above_ns, clock::thread_cpu_ns()));
        let complete = fence::barrier()?;
        let latency_ns = match executed_ns {
            Some((above_ns, before_ns)) if complete.latency_ns() > above_ns => {
                complete.latency_ns().min(clock::thread_cpu_ns() - before_ns)
            }
            _ => complete.latency_ns(),
        };
        Ok((complete, latency_ns))
    }

    /// Called by writers after each fence. `latency_ns` is that of their membarrier, if they called it.
    pub(crate) fn observe(&self, core: &Core, latency_ns: Option<u64>) {
        if self.above_ns.is_none() {
            return;
        }
        // Somebody else is at it: their observation will do.
        let Some(mut switch) = self.switch.try_lock() else { return };
        match (self.state.load(Ordering::SeqCst), latency_ns) {
            (ASYMMETRIC, Some(ns)) if switch.called(clock::now_ns(), ns) => {
                let left = self.leave(core).is_ok();
                drop(switch);
                if left {
                    trace::switched(true);
                }
            }
            (FENCED, None) => {
                if !switch.is_due(clock::now_ns()) {
                    return;
                }
                let Ok((_, latency_ns)) = self.barrier() else { return };
                if switch.probed(clock::now_ns(), latency_ns) {
                    self.give_back(core);
                    drop(switch);
                    trace::switched(false);
                }
            }
            // The domain has switched between the caller's fence and now.
            _ => {}
        }
    }

    /// In the child of a fork. A transition that another thread was in may be anywhere; the child's only
    /// thread starts anew, asymmetric: no other thread's stores can be under way.
    pub(crate) fn reset_after_fork(&self, mode: &AtomicU32) {
        // SAFETY: whoever holds the lock is in the parent.
        unsafe { self.switch.reset_after_fork() };
        if self.above_ns.is_some() {
            self.state.store(ASYMMETRIC, Ordering::SeqCst);
            mode.store(ASYMMETRIC, Ordering::SeqCst);
        }
    }

    /// Moves the readers to fences. Where membarrier is refused meanwhile, readers do so already, and writers do not rely
    /// on it.
    fn leave(&self, core: &Core) -> Result<(), NoFence> {
        // SeqCst, before membarrier: see the module's text.
        core.clock.mode.store(FENCED, Ordering::SeqCst);
        fence::barrier()?;
        self.state.store(FENCED, Ordering::SeqCst);
        self.switches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, core: &Core) {
        self.state.store(ASYMMETRIC, Ordering::SeqCst);
        // Pairs with the fence in `Core::order`: a writer that read the state before it was changed has its
        // unlink visible to everything after this fence.
        full_fence(Ordering::SeqCst);
        // Release pairs with the Acquire in `is_asymmetric`.
        core.clock.mode.store(ASYMMETRIC, Ordering::Release);
        self.switches.fetch_add(1, Ordering::Relaxed);
    }

    /// Switches as if membarrier had been slow, or quick, often enough. For tests under load.
    #[cfg(test)]
    pub(crate) fn force(&self, core: &Core, mode: u32) {
        let _switch = self.switch.lock();
        match self.state.load(Ordering::SeqCst) {
            ASYMMETRIC if mode == FENCED => self.leave(core).expect("membarrier is allowed"),
            FENCED if mode == ASYMMETRIC => self.give_back(core),
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
