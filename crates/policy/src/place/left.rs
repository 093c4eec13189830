//! Which slices each task has left: it does not return to a vCPU within the slice in which it left it.
//!
//! A word for each task and vCPU, for a task may leave every vCPU once before the first is off: remembering only the last few
//! would let it go round in circles.

/// The slices left: 4 bytes for each task and vCPU, allocated at once.
#[derive(Debug)]
pub(super) struct Left {
    vcpus: usize,
    /// By task and vCPU: the mark of the slice.
    marks: Vec<u32>,
}

/// Never 0, which is no slice. Numbers that are 2^32 apart look alike, which is of no account.
fn mark(stretch: u64) -> u32 {
    (stretch as u32).wrapping_add(1).max(1)
}

impl Left {
    pub(super) fn new(tasks: usize, vcpus: usize) -> Left {
        Left { vcpus, marks: vec![0; tasks * vcpus] }
    }

    /// The task has left this vCPU in this slice of it.
    pub(super) fn leave(&mut self, task: usize, vcpu: usize, stretch: u64) {
        self.marks[task * self.vcpus + vcpu] = mark(stretch);
    }

    /// Whether it has.
    pub(super) fn has_left(&self, task: usize, vcpu: usize, stretch: u64) -> bool {
        self.marks[task * self.vcpus + vcpu] == mark(stretch)
    }

    /// The task is where its user lets it be, or is another one.
    pub(super) fn forget(&mut self, task: usize) {
        self.marks[task * self.vcpus..][..self.vcpus].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_that_was_left_is_known_until_the_next() {
        let mut left = Left::new(2, 3);
        left.leave(1, 2, 7);
        assert!(left.has_left(1, 2, 7) && !left.has_left(1, 2, 8));
        assert!(!left.has_left(0, 2, 7) && !left.has_left(1, 1, 7) && !left.has_left(1, 0, 0));
        left.leave(1, 2, u64::from(u32::MAX));
        assert!(left.has_left(1, 2, u64::from(u32::MAX)));
        left.forget(1);
        assert!(!left.has_left(1, 2, u64::from(u32::MAX)));
    }
}
