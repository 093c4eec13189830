//! What an RCU callback does, in the 8 bytes that RCU carries for it.

use crate::guest::ids::TaskId;
use crate::guest::memory::Object;
use crate::guest::rcu::Callback;

/// The two highest bits say what it is.
const KIND_SHIFT: u32 = 62;

/// A callback, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Frees an object.
    Free(Object),
    /// Wakes the task that waits for this grace period.
    Wake(TaskId),
    /// One vCPU's part of an `rcu_barrier()` by that task.
    Barrier(TaskId),
    /// Frees the objects of a batch of `kfree_rcu()`.
    Batch {
        /// Of which vCPU.
        vcpu: usize,
        /// Which of its batches.
        batch: usize,
    },
}

/// A callback that frees an object.
pub fn free(object: Object) -> Callback {
    debug_assert_eq!(object.0 >> KIND_SHIFT, 0);
    Callback(object.0)
}

/// A callback that wakes a task.
pub fn wake(task: TaskId) -> Callback {
    Callback(1 << KIND_SHIFT | u64::from(task.0))
}

/// A callback that is one vCPU's part of a barrier.
pub fn barrier(task: TaskId) -> Callback {
    Callback(2 << KIND_SHIFT | u64::from(task.0))
}

/// A callback for a batch of objects of a vCPU; it has at most 256 batches.
pub fn batch(vcpu: usize, batch: usize) -> Callback {
    Callback(3 << KIND_SHIFT | (vcpu as u64) << 8 | batch as u64)
}

/// Decodes it.
pub fn action(callback: Callback) -> Action {
    let value = callback.0 & !(3 << KIND_SHIFT);
    match callback.0 >> KIND_SHIFT {
        0 => Action::Free(Object(value)),
        1 => Action::Wake(TaskId(value as u32)),
        2 => Action::Barrier(TaskId(value as u32)),
        _ => Action::Batch { vcpu: (value >> 8) as usize, batch: (value & 0xff) as usize },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_went_in() {
        assert_eq!(action(free(Object(12345))), Action::Free(Object(12345)));
        assert_eq!(action(wake(TaskId(7))), Action::Wake(TaskId(7)));
        assert_eq!(action(barrier(TaskId(8))), Action::Barrier(TaskId(8)));
        assert_eq!(action(batch(63, 1)), Action::Batch { vcpu: 63, batch: 1 });
    }
}
