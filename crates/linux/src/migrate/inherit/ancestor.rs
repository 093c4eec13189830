//! A task whose children may inherit a binding.

use crate::migrate::masks::changes::Window;
use crate::migrate::masks::state_record::Saved;
use crate::migrate::masks::table::Held;
use crate::migrate::watch::forks::Fork;

/// The kernel records a fork at its end. The child may have copied its parent's mask, and calls may name it, up to this
/// long before, ns.
pub const FORK_TAKES_NS: u64 = 100_000_000;
/// The most ids kept of a task and its ancestors.
const MOST_NUMBERS: usize = 64;

/// A task whose children may inherit a binding.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// The task and its user's mask.
    pub saved: Saved,
    /// The time in which the daemon had, or may have had, it bound.
    pub bound: Window,
    /// Its ids, and those of its ancestors up to a managed task.
    pub numbers: Vec<i32>,
}

impl Ancestor {
    /// A managed task as it was at this time, if it was ever bound.
    pub fn of(held: &Held, at_ns: u64) -> Option<Ancestor> {
        let (saved, numbers) = (held.saved_at(at_ns).clone(), held.numbers.clone());
        Some(Ancestor { saved, bound: held.changes().bound()?, numbers })
    }

    /// Whether a child whose fork was recorded at this time may have inherited a binding.
    pub fn may_bequeath(&self, at_ns: u64) -> bool {
        self.bound.from_ns <= at_ns && at_ns.saturating_sub(FORK_TAKES_NS) <= self.bound.until_ns
    }

    /// The child of a fork, with the mask of its parent's user.
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
