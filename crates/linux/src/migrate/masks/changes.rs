//! The last changes that we have made of one task's mask, and when: what it may have handed down to its children, and what
//! its user may have asked for in between.
//!
//! It has a fixed size, since the threads that write it must not allocate.

/// Changes remembered of a task: at the shortest beat, those of some ten rounds of the house thread.
const LAST: usize = 16;

/// A change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// When it began, ns. Just before, the task had the mask `before`.
    pub began_ns: u64,
    /// When it had ended, ns; [`u64::MAX`] while it is under way.
    pub ended_ns: u64,
    /// The CPU it was bound to; none if it had its user's mask.
    pub before: Option<usize>,
}

/// A span of time, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// It begins.
    pub from_ns: u64,
    /// It ends; [`u64::MAX`] if it has not yet.
    pub until_ns: u64,
}

/// The last changes of a task's mask.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    last: [Change; LAST],
    /// How many there ever were.
    count: usize,
    bound: Option<Window>,
    unbinds: bool,
}

impl Changes {
    /// A change begins, from one binding to another; none is the user's mask.
    pub fn begin(&mut self, began_ns: u64, before: Option<usize>, after: Option<usize>) {
        self.last[self.count % LAST] = Change { began_ns, ended_ns: u64::MAX, before };
        self.count += 1;
        self.unbinds = after.is_none();
        if after.is_some() {
            let from_ns = self.bound.map_or(began_ns, |bound| bound.from_ns);
            self.bound = Some(Window { from_ns, until_ns: u64::MAX });
        }
    }

    /// It ends.
    pub fn end(&mut self, ended_ns: u64, succeeded: bool) {
        if self.count > 0 {
            self.last[(self.count - 1) % LAST].ended_ns = ended_ns;
        }
        if let Some(bound) = self.bound.as_mut().filter(|_| self.unbinds && succeeded) {
            bound.until_ns = ended_ns;
        }
    }

    /// When the task was, or may have been, bound by us; none if never.
    pub fn bound(&self) -> Option<Window> {
        self.bound
    }

    /// Somebody else began to set the mask at `began_ns`, and we have overwritten that without noticing. Returns what we had
    /// bound the task to just before: the call must have asked for the same. The inner `None` is the user's mask; the outer one
    /// says that we have changed nothing since.
    pub fn overwritten_since(&self, began_ns: u64) -> Option<Option<usize>> {
        let remembered = self.count.saturating_sub(LAST)..self.count;
        let mut since = remembered.map(|index| self.last[index % LAST]).filter(|set| set.ended_ns > began_ns);
        since.next().map(|set| set.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overwritten_is_what_the_task_had_before_the_first_change_since() {
        let mut sets = Changes::default();
        assert_eq!((sets.bound(), sets.overwritten_since(0)), (None, None));
        for (at_ns, before, after) in [(10, None, Some(1)), (20, Some(1), Some(2)), (30, Some(2), None)] {
            sets.begin(at_ns, before, after);
            sets.end(at_ns + 5, true);
        }
        assert_eq!(sets.overwritten_since(0), Some(None));
        assert_eq!(sets.overwritten_since(16), Some(Some(1)));
        assert_eq!(sets.overwritten_since(24), Some(Some(1)), "while we did it");
        assert_eq!((sets.overwritten_since(25), sets.overwritten_since(35)), (Some(Some(2)), None));
        assert_eq!(sets.bound(), Some(Window { from_ns: 10, until_ns: 35 }));
        sets.begin(40, None, Some(1));
        assert_eq!(sets.bound(), Some(Window { from_ns: 10, until_ns: u64::MAX }), "from the first on");
        sets.end(45, false);
        sets.begin(50, Some(1), None);
        sets.end(55, false);
        assert_eq!(sets.bound().unwrap().until_ns, u64::MAX, "it was refused");
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut sets = Changes::default();
        for round in 0..100u64 {
            sets.begin(round * 10, Some(round as usize), Some(round as usize + 1));
            sets.end(round * 10 + 1, true);
        }
        assert_eq!(sets.overwritten_since(0), Some(Some(100 - LAST)));
    }
}
