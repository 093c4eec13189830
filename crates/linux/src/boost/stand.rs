//! The CPU on which the loop's thread runs.
//!
//! The kernel updates the run time of a vCPU's thread at ticks, and when another thread takes its CPU. So seen from another
//! CPU, the run time is up to a tick old. The loop's thread has real-time priority. When it moves to the vCPU's CPU, it
//! preempts the vCPU, and the run time is exact: if it did not grow by the move, the vCPU was not running.

use reprieve_policy::cpus::CpuSet;

use crate::threads::{affinity_set, own_tid, set_affinity_set};

/// Binds the calling thread to one CPU at a time.
#[derive(Debug, Default)]
pub(super) struct Stand {
    /// The CPUs that the thread could use at first; `None` if they are unknown.
    home: Option<CpuSet>,
    /// The CPU that it is bound to now.
    at: Option<usize>,
    /// Whether [`Stand::go`] was called since the last [`Stand::rest`].
    is_wanted: bool,
}

impl Stand {
    /// For the calling thread.
    pub fn here() -> Stand {
        Stand { home: affinity_set(own_tid()).ok(), ..Stand::default() }
    }

    /// Moves the thread to a CPU. Returns whether it was already there.
    pub fn go(&mut self, pcpu: usize) -> bool {
        self.is_wanted = true;
        if self.at == Some(pcpu) {
            return true;
        }
        let was_there = rustix::thread::sched_getcpu() == pcpu;
        // If the kernel refuses, run times may be up to a tick old.
        let is_moved =
            self.home.is_some() && set_affinity_set(own_tid(), &std::iter::once(pcpu).collect()).is_ok();
        self.at = is_moved.then_some(pcpu);
        was_there
    }

    /// Lets the thread use its first CPUs again, if [`Stand::go`] was not called since the last call.
    pub fn rest(&mut self) {
        let is_wanted = std::mem::take(&mut self.is_wanted);
        if let (false, Some(home), Some(_)) = (is_wanted, &self.home, self.at) {
            let _ = set_affinity_set(own_tid(), home);
            self.at = None;
        }
    }
}
