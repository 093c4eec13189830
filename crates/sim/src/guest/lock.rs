//! Spinlocks of a guest, fair as Linux's queued ones: handed over in the order of arrival, also to a waiter whose
//! vCPU is descheduled. So both a descheduled holder and a descheduled next waiter stop all others.

use std::collections::VecDeque;

use crate::guest::task::TaskId;

/// A spinlock, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lock(pub u32);

/// Its state.
#[derive(Clone, Debug, Default)]
pub struct SpinLock {
    holder: Option<TaskId>,
    waiters: VecDeque<TaskId>,
}

impl SpinLock {
    /// Takes it, or queues for it; returns whether it was taken.
    pub fn take(&mut self, task: TaskId) -> bool {
        if self.holder.is_none() {
            self.holder = Some(task);
            return true;
        }
        self.waiters.push_back(task);
        false
    }

    /// Releases it and hands it to the first waiter that `eligible` admits, or to the first one if none is.
    pub fn release(&mut self, eligible: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let chosen = self.waiters.iter().position(|task| eligible(*task)).unwrap_or(0);
        self.holder = self.waiters.remove(chosen);
        self.holder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_handed_over_in_the_order_of_arrival() {
        let mut lock = SpinLock::default();
        assert!(lock.take(TaskId(0)));
        assert!(!lock.take(TaskId(1)) && !lock.take(TaskId(2)));
        assert_eq!(lock.release(|_| true), Some(TaskId(1)));
        assert_eq!(lock.release(|_| true), Some(TaskId(2)));
        assert_eq!(lock.release(|_| true), None);
        assert!(lock.take(TaskId(3)));
    }

    #[test]
    fn passes_over_who_cannot_run_when_told_to() {
        let mut lock = SpinLock::default();
        assert!(lock.take(TaskId(0)));
        assert!(!lock.take(TaskId(1)) && !lock.take(TaskId(2)));
        assert_eq!(lock.release(|task| task != TaskId(1)), Some(TaskId(2)));
        assert_eq!(lock.release(|task| task != TaskId(1)), Some(TaskId(1)));
    }
}
