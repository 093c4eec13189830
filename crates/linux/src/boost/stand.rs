//! Where the loop's thread runs.
//!
//! The kernel accounts a thread's run time at its ticks, and whenever another thread takes its CPU. So from elsewhere a
//! thread's run time is up to a tick old. Once the loop's thread, which has real-time priority, has moved to that CPU, it
//! is exact: if it did not grow by the move, the thread did not run.

use reprieve_policy::cpus::CpuSet;

use crate::threads::{affinity_set, own_tid, set_affinity_set};

/// The place of the calling thread.
#[derive(Debug, Default)]
pub(super) struct Stand {
    /// The CPUs that the thread may use.
    home: Option<CpuSet>,
    /// The CPU that it is bound to now.
    at: Option<usize>,
    /// Whether it was wanted somewhere since the last [`Stand::rest`].
    is_wanted: bool,
}

impl Stand {
    /// For the calling thread.
    pub fn here() -> Stand {
        Stand { home: affinity_set(own_tid()).ok(), ..Stand::default() }
    }

    /// Moves the thread to a CPU. Returns whether it was there already.
    pub fn go(&mut self, pcpu: usize) -> bool {
        self.is_wanted = true;
        if self.at == Some(pcpu) {
            return true;
        }
        let was_there = rustix::thread::sched_getcpu() == pcpu;
        // If the kernel refuses, run times are up to a tick old.
        let is_moved =
            self.home.is_some() && set_affinity_set(own_tid(), &std::iter::once(pcpu).collect()).is_ok();
        self.at = is_moved.then_some(pcpu);
        was_there
    }

    /// Lets the thread run anywhere again, if it was not wanted since the last call.
    pub fn rest(&mut self) {
        let is_wanted = std::mem::take(&mut self.is_wanted);
        if let (false, Some(home), Some(_)) = (is_wanted, &self.home, self.at) {
            let _ = set_affinity_set(own_tid(), home);
            self.at = None;
        }
    }
}
