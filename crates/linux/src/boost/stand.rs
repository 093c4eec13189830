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
    /// The CPU that it was bound to last. It stays until the thread is known to be free again.
    bound: Option<usize>,
    /// Whether [`Stand::go`] was called since the last [`Stand::rest`].
    is_wanted: bool,
    /// A CPU that it could not move to.
    refused: Option<usize>,
}

/// How the thread came to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It was there already.
    WasThere,
    /// It moved there just now.
    Moved,
    /// It is elsewhere. The CPU is offline, or the process may not use it.
    Refused,
}

impl Stand {
    /// For the calling thread.
    pub fn here() -> Stand {
        Stand { home: affinity_set(own_tid()).ok(), ..Stand::default() }
    }

    /// Moves the thread to a CPU.
    pub fn go(&mut self, pcpu: usize) -> Came {
        self.is_wanted = true;
        // The kernel moves a thread away from a CPU that goes offline, so being bound to it is not enough.
        let was_there = rustix::thread::sched_getcpu() == pcpu;
        if was_there && self.bound == Some(pcpu) {
            return Came::WasThere;
        }
        let is_bound =
            self.home.is_some() && set_affinity_set(own_tid(), &std::iter::once(pcpu).collect()).is_ok();
        if is_bound {
            self.bound = Some(pcpu);
        }
        match (was_there, is_bound) {
            (true, _) => Came::WasThere,
            (false, true) => Came::Moved,
            (false, false) => {
                self.refused = Some(pcpu);
                Came::Refused
            }
        }
    }

    /// Lets the thread run anywhere again, if it was not wanted since the last call. If that fails, the next call tries
    /// again.
    pub fn rest(&mut self) {
        let is_wanted = std::mem::take(&mut self.is_wanted);
        if let (false, Some(home), Some(_)) = (is_wanted, &self.home, self.bound)
            && set_affinity_set(own_tid(), home).is_ok()
        {
            self.bound = None;
        }
    }

    /// A note for people, if the thread could not move somewhere.
    pub fn note(&self) -> Option<String> {
        let pcpu = self.refused?;
        Some(format!(
            "the boosting loop may not run on CPU {pcpu}, so it did not boost vCPUs there: let it use all CPUs"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest number that fits into a set: no host has it.
    const NOWHERE: usize = 1023;

    #[test]
    fn a_thread_that_was_refused_somewhere_is_free_again_at_rest() {
        // The test's thread ends with its bindings.
        let home = affinity_set(own_tid()).unwrap();
        let mut stand = Stand::here();
        let first = rustix::thread::sched_getcpu();
        assert_ne!(stand.go(first), Came::Refused);
        assert_eq!(stand.go(first), Came::WasThere);
        assert_eq!(affinity_set(own_tid()).unwrap(), std::iter::once(first).collect());
        assert_eq!((stand.go(NOWHERE), stand.note().is_some()), (Came::Refused, true));
        stand.rest();
        assert_ne!(affinity_set(own_tid()).unwrap(), home, "it was wanted");
        stand.rest();
        assert_eq!(affinity_set(own_tid()).unwrap(), home);
    }

    #[test]
    fn a_thread_moves_to_each_cpu_that_it_may_use() {
        let home = affinity_set(own_tid()).unwrap();
        let mut stand = Stand::here();
        for pcpu in home.iter() {
            assert_ne!(stand.go(pcpu), Came::Refused);
            assert_eq!(rustix::thread::sched_getcpu(), pcpu);
        }
        assert_eq!(stand.note(), None);
    }
}
