//! Which slices each task has left: it does not return to a vCPU within the slice in which it left it, until that vCPU would
//! be back, had it gone off as was feared. Then it was feared in vain, and the slice may last for long.
//!
//! Memory for each task and vCPU, for a task may leave every vCPU once before the first is off: remembering only the last few
//! would let it go round in circles.

/// A slice that was left.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Which: never 0, which is none. Numbers that are 2^32 apart look alike, which is of no account.
    slice: u32,
    /// From then on it may return, ns.
    until_ns: u64,
}

/// The slices left: 16 bytes for each task and vCPU, allocated at once.
#[derive(Debug)]
pub(super) struct Left {
    vcpus: usize,
    /// By task and vCPU.
    marks: Vec<Mark>,
}

fn slice(stretch: u64) -> u32 {
    (stretch as u32).wrapping_add(1).max(1)
}

impl Left {
    pub(super) fn new(tasks: usize, vcpus: usize) -> Left {
        Left { vcpus, marks: vec![Mark::default(); tasks * vcpus] }
    }

    /// The task has left this vCPU in this slice of it, and had better not return before `until_ns`.
    pub(super) fn leave(&mut self, task: usize, vcpu: usize, stretch: u64, until_ns: u64) {
        self.marks[task * self.vcpus + vcpu] = Mark { slice: slice(stretch), until_ns };
    }

    /// Whether it has left this vCPU in this slice, and had better not return yet.
    pub(super) fn has_left(&self, task: usize, vcpu: usize, stretch: u64, now_ns: u64) -> bool {
        let mark = self.marks[task * self.vcpus + vcpu];
        mark.slice == slice(stretch) && now_ns < mark.until_ns
    }

    /// The task is where its user lets it be, or is another one.
    pub(super) fn forget(&mut self, task: usize) {
        self.marks[task * self.vcpus..][..self.vcpus].fill(Mark::default());
    }

    /// The clock was set back: none of the times holds.
    pub(super) fn forget_all(&mut self) {
        self.marks.fill(Mark::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_that_was_left_is_known_until_the_next_or_until_it_was_feared_in_vain() {
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
