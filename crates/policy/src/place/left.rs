//! Remembers which slice of which vCPU each task has left, so that it does not come straight back.
//!
//! A task that left a vCPU ahead of an expected end stays away for the rest of that slice. If the slice did not end as
//! expected, the task may return once the vCPU would have come back: the slice may then last long.
//!
//! There is one entry per task and vCPU. A task may leave every vCPU once before the first of them goes off, so with
//! only the last few remembered it could go round in circles.

/// A slice that a task has left.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// A tag of the slice's number; 0 is no slice. Numbers 2^32 apart share a tag, but no mark lives that long.
    slice: u32,
    /// The task may return from this time on, ns.
    until_ns: u64,
}

/// The marks of all tasks: 16 bytes for each task and vCPU, allocated once.
#[derive(Debug)]
pub(super) struct Left {
    vcpus: usize,
    /// By task and vCPU.
    marks: Vec<Mark>,
}

/// The tag of a slice's number; never 0.
fn tag(slice: u64) -> u32 {
    (slice as u32).wrapping_add(1).max(1)
}

impl Left {
    pub(super) fn new(tasks: usize, vcpus: usize) -> Left {
        Left { vcpus, marks: vec![Mark::default(); tasks * vcpus] }
    }

    /// The task has left this vCPU in this slice, and must not return before `until_ns`.
    pub(super) fn leave(&mut self, task: usize, vcpu: usize, slice: u64, until_ns: u64) {
        self.marks[task * self.vcpus + vcpu] = Mark { slice: tag(slice), until_ns };
    }

    /// Whether the task has left this vCPU in this slice and must not return yet.
    pub(super) fn has_left(&self, task: usize, vcpu: usize, slice: u64, now_ns: u64) -> bool {
        let mark = self.marks[task * self.vcpus + vcpu];
        mark.slice == tag(slice) && now_ns < mark.until_ns
    }

    /// The task was released to its user's mask, or the number has a new task.
    pub(super) fn forget(&mut self, task: usize) {
        self.marks[task * self.vcpus..][..self.vcpus].fill(Mark::default());
    }

    /// The clock was set back, so the stored times are void.
    pub(super) fn forget_all(&mut self) {
        self.marks.fill(Mark::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_stays_away_until_the_next_slice_or_the_given_time() {
        let mut left = Left::new(2, 3);
        left.leave(1, 2, 7, 100);
        assert!(left.has_left(1, 2, 7, 99) && !left.has_left(1, 2, 8, 99) && !left.has_left(1, 2, 7, 100));
        assert!(!left.has_left(0, 2, 7, 0) && !left.has_left(1, 1, 7, 0) && !left.has_left(1, 0, 0, 0));
        left.leave(1, 2, u64::from(u32::MAX), 100);
        assert!(left.has_left(1, 2, u64::from(u32::MAX), 0));
        left.forget(1);
        assert!(!left.has_left(1, 2, u64::from(u32::MAX), 0));
        left.leave(0, 0, 1, 100);
        left.forget_all();
        assert!(!left.has_left(0, 0, 1, 0));
    }
}
