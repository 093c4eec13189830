//! What a reader does with the node it looks up, while the scheme protects it.

use crate::clock::{now_ns, sleep_until, thread_cpu_ns};
use crate::ledger::Ledger;
use crate::table::{Node, dwell_on_copy};
use std::hint::black_box;

/// What a look-up met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The node, which held its key and value throughout.
    Right,
    /// No node: the writer was replacing it.
    Missing,
    /// A node that did not hold its key and value: it was freed too early.
    Wrong,
}

/// The inside of a read-side section. It may run again from its start: it changes nothing but what it returns.
///
/// Whether it sleeps is a type: the look-ups of a run, all but one, do not ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Section<S = Awake> {
    rounds: u64,
    sleep: S,
}

/// A section that does not sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awake;

/// A section that sleeps for so many nanoseconds before it looks at the node.
#[derive(Clone, Copy, Debug)]
pub struct Asleep(u64);

/// Whether a section sleeps.
pub trait Sleep {
    /// The section's sleep.
    fn sleep(&self);
}

impl Sleep for Awake {
    #[inline(always)]
    fn sleep(&self) {}
}

impl Sleep for Asleep {
    fn sleep(&self) {
        sleep_for(self.0);
    }
}

impl Section {
    /// A section that computes for `rounds` of [`Node::dwell`], see [`rounds_of`].
    pub fn new(rounds: u64) -> Self {
        Self { rounds, sleep: Awake }
    }

    /// This section, which also sleeps for `ns`.
    pub fn stalled(self, ns: u64) -> Section<Asleep> {
        Section { rounds: self.rounds, sleep: Asleep(ns) }
    }
}

impl<S: Sleep> Section<S> {
    /// Looks at the node of `key`.
    #[inline]
    pub fn hold(&self, key: u64, node: Option<&Node>) -> Found {
        self.stall();
        self.hold_awake(key, node)
    }

    /// As [`hold`](Self::hold), without the sleep: for sections that make no system call.
    #[inline]
    pub fn hold_awake(&self, key: u64, node: Option<&Node>) -> Found {
        match node {
            None => Found::Missing,
            Some(node) if node.dwell(key, self.rounds) => Found::Right,
            Some(_) => Found::Wrong,
        }
    }

    /// As [`hold_awake`](Self::hold_awake), after the section, with the value that it copied out.
    #[inline]
    pub fn hold_copy(&self, key: u64, value: Option<u64>) -> Found {
        match value {
            None => Found::Missing,
            Some(value) if dwell_on_copy(value, key, self.rounds) => Found::Right,
            Some(_) => Found::Wrong,
        }
    }

    /// The section's sleep alone.
    #[inline]
    pub fn stall(&self) {
        self.sleep.sleep();
    }
}

/// Out of the look-ups' way, and by its calling convention known not to unwind: otherwise each look-up would pay for it.
#[cold]
#[inline(never)]
extern "C" fn sleep_for(ns: u64) {
    sleep_until(now_ns() + ns);
}

/// Rounds of [`Node::dwell`] that last `ns`. The quickest of several tries: the others were disturbed.
pub fn rounds_of(ns: u64, ledger: &'static Ledger) -> u64 {
    const TRIES: usize = 16;
    const ROUNDS: u64 = 20_000;
    let own = Node::new(1, ledger);
    // A node that the compiler could see through would be computed on in no time.
    let own = black_box(&own);
    let took_ns = |_| {
        let start_ns = thread_cpu_ns();
        assert!(own.dwell(1, ROUNDS));
        thread_cpu_ns() - start_ns
    };
    ns * ROUNDS / (0..TRIES).map(took_ns).min().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_tells_right_missing_and_wrong() {
        let node = Node::new(5, Box::leak(Box::new(Ledger::default())));
        let section = Section::new(3);
        assert_eq!(section.hold(5, Some(&node)), Found::Right);
        assert_eq!(section.hold(5, None), Found::Missing);
        assert_eq!(section.hold(6, Some(&node)), Found::Wrong);
    }

    #[test]
    fn a_stalled_section_sleeps() {
        let start_ns = now_ns();
        Section::new(0).stalled(2_000_000).hold(0, None);
        assert!(now_ns() - start_ns >= 2_000_000);
    }
}
