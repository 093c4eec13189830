//! The latest changes that the daemon made to one task's mask. They show which binding the task's children may have
//! inherited, and which call of its user a change has overwritten.
//!
//! The size is fixed, since the threads that write it must not allocate.

/// Number of changes remembered. At the shortest beat, they reach back some ten rounds of the main loop.
const LAST: usize = 16;

/// A change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// When the change began, ns. Until then the task had the mask `before`.
    pub began_ns: u64,
    /// When the change ended, ns; [`u64::MAX`] while it is under way.
    pub ended_ns: u64,
    /// The CPU that the task was bound to before; `None` if it had its user's mask.
    pub before: Option<usize>,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its beginning, ns.
    pub from_ns: u64,
    /// Its end, ns; [`u64::MAX`] if it has not ended.
    pub until_ns: u64,
}

/// The latest changes to a task's mask.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    last: [Change; LAST],
    /// Number of changes ever made.
    count: usize,
    /// From the first binding to the last restored mask: the time in which the daemon had, or may have had, the task
    /// bound; `None` if never.
    pub bound: Option<Window>,
    /// Whether the latest change restores the user's mask.
    unbinds: bool,
}

impl Changes {
    /// A change from one binding to another begins; `None` is the user's mask.
    pub fn begin(&mut self, began_ns: u64, before: Option<usize>, after: Option<usize>) {
        self.last[self.count % LAST] = Change { began_ns, ended_ns: u64::MAX, before };
        self.count += 1;
        self.unbinds = after.is_none();
        if after.is_some() {
            let from_ns = self.bound.map_or(began_ns, |bound| bound.from_ns);
            self.bound = Some(Window { from_ns, until_ns: u64::MAX });
        }
    }

    /// The change ends.
    pub fn end(&mut self, ended_ns: u64, succeeded: bool) {
        if self.count > 0 {
            self.last[(self.count - 1) % LAST].ended_ns = ended_ns;
        }
        if let Some(bound) = self.bound.as_mut().filter(|_| self.unbinds && succeeded) {
            bound.until_ns = ended_ns;
        }
    }

    /// Somebody else began to set the mask at `began_ns`, and a later change of the daemon's has overwritten it. That
    /// change had found the mask as the daemon had left it, so the call must have asked for the same mask. Returns that
    /// binding. The inner `None` is the user's mask; the outer `None` means that the daemon has changed nothing since.
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
    fn the_overwritten_mask_is_the_one_before_the_first_later_change() {
        let mut changes = Changes::default();
        assert_eq!((changes.bound, changes.overwritten_since(0)), (None, None));
        for (at_ns, before, after) in [(10, None, Some(1)), (20, Some(1), Some(2)), (30, Some(2), None)] {
            changes.begin(at_ns, before, after);
            changes.end(at_ns + 5, true);
        }
        assert_eq!(changes.overwritten_since(0), Some(None));
        assert_eq!(changes.overwritten_since(16), Some(Some(1)));
        assert_eq!(changes.overwritten_since(24), Some(Some(1)), "during the change");
        assert_eq!((changes.overwritten_since(25), changes.overwritten_since(35)), (Some(Some(2)), None));
        assert_eq!(changes.bound, Some(Window { from_ns: 10, until_ns: 35 }));
        changes.begin(40, None, Some(1));
        assert_eq!(
            changes.bound,
            Some(Window { from_ns: 10, until_ns: u64::MAX }),
            "from the first binding on"
        );
        changes.end(45, false);
        changes.begin(50, Some(1), None);
        changes.end(55, false);
        assert_eq!(changes.bound.unwrap().until_ns, u64::MAX, "the change was refused");
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut changes = Changes::default();
        for round in 0..100u64 {
            changes.begin(round * 10, Some(round as usize), Some(round as usize + 1));
            changes.end(round * 10 + 1, true);
        }
        assert_eq!(changes.overwritten_since(0), Some(Some(100 - LAST)));
    }
}
