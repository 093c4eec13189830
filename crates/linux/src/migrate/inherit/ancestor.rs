//! A task that the daemon has bound to a CPU, or a descendant of one: its children may inherit the binding.

use crate::migrate::masks::{Held, Saved, Window};
use crate::migrate::watch::Fork;

/// The longest that a fork takes, ns. The kernel records it at its end. Before that, the child has copied its parent's
/// mask, and other tasks may have set the child's.
pub const FORK_TAKES_NS: u64 = 100_000_000;
/// The most ids kept of a task and its ancestors; those of the farthest ancestors go first.
const MOST_NUMBERS: usize = 64;

/// A task whose children may inherit a binding.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// The task, and the mask that its user gave it.
    pub saved: Saved,
    /// From the daemon's first binding to the last restored mask: in this time the task may have been bound.
    pub bound: Window,
    /// Its ids, and those of its ancestors up to a managed task.
    pub numbers: Vec<i32>,
}

impl Ancestor {
    /// A managed task, with its user's mask as it was at `at_ns`; `None` if the daemon never bound it.
    pub fn of(held: &Held, at_ns: u64) -> Option<Ancestor> {
        let (saved, numbers) = (held.saved_at(at_ns).clone(), held.numbers.clone());
        Some(Ancestor { saved, bound: held.changes.bound?, numbers })
    }

    /// Whether a child whose fork was recorded at `at_ns` may have inherited a binding.
    pub fn may_bequeath(&self, at_ns: u64) -> bool {
        self.bound.from_ns <= at_ns && at_ns.saturating_sub(FORK_TAKES_NS) <= self.bound.until_ns
    }

    /// The child of a fork, with the mask that its parent's user gave the parent.
    pub fn child(&self, fork: &Fork, start_ticks: u64) -> Saved {
        Saved { pid: fork.pid, tid: fork.tid, start_ticks, ..self.saved.clone() }
    }

    /// The child of a fork as an ancestor itself: its own children may inherit the binding from it.
    pub fn child_as_ancestor(&self, fork: &Fork, mut numbers: Vec<i32>) -> Ancestor {
        numbers.extend_from_slice(&self.numbers);
        numbers.truncate(MOST_NUMBERS);
        let bound = Window { from_ns: fork.at_ns.saturating_sub(FORK_TAKES_NS), until_ns: u64::MAX };
        Ancestor { saved: self.child(fork, 0), bound, numbers }
    }
}
