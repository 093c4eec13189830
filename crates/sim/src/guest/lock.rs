//! Spinlocks of a guest, in three disciplines.
//!
//! *Queued*, as on bare metal: handed over in the order of arrival, also to a waiter whose vCPU is descheduled. So a
//! descheduled holder and a descheduled next waiter both stop all others.
//!
//! *Paravirtual*, as KVM guests have them (Linux 3.12, queued since 4.2): who arrives may steal a free lock, a waiter
//! that has spun for long halts its vCPU, and a release kicks the first waiter if that is halted. So only a
//! descheduled holder stops the others.

//! *Test and set*, as Linux falls back to where it sees a hypervisor without paravirtual locks (`virt_spin_lock`), as under QEMU without
//! KVM: there is no order, and whoever runs takes a free lock. Only a descheduled holder stops the others, and no waiter halts.

use std::collections::VecDeque;

use reprieve_study::scenario::Spinlocks;

use crate::guest::ids::TaskId;

/// A spinlock, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lock(pub u32);

/// What a release leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nobody waits that could take it now.
    Free,
    /// That waiter holds it from now on.
    HandedTo(TaskId),
    /// It is free, and the first waiter should look at it.
    Kick(TaskId),
}

/// Its state.
#[derive(Clone, Debug, Default)]
pub struct SpinLock {
    holder: Option<TaskId>,
    waiters: VecDeque<TaskId>,
}

/// The spinlocks of a guest.
#[derive(Debug)]
pub(super) struct Locks {
    pub discipline: Spinlocks,
    all: Vec<SpinLock>,
}

impl Locks {
    /// That many free locks.
    pub fn new(count: u32, discipline: Spinlocks) -> Locks {
        Locks { discipline, all: vec![SpinLock::default(); count as usize] }
    }

    /// Takes a lock if it is free, or queues for it; returns whether it was taken.
    pub fn take(&mut self, lock: Lock, task: TaskId) -> bool {
        self.all[lock.0 as usize].take(task)
    }

    /// A waiter looks at the lock; returns whether it was taken.
    pub fn retry(&mut self, lock: Lock, task: TaskId) -> bool {
        self.all[lock.0 as usize].retry(task, self.discipline != Spinlocks::TestAndSet)
    }

    /// Releases a lock. `runs` says whether a waiter's vCPU runs.
    pub fn release(&mut self, lock: Lock, runs: impl Fn(TaskId) -> bool) -> Release {
        let lock = &mut self.all[lock.0 as usize];
        match self.discipline {
            Spinlocks::Queued => lock.release(),
            Spinlocks::Paravirtual => lock.release_to_running(runs),
            Spinlocks::TestAndSet => lock.release_to_any_running(runs),
        }
    }
}

impl SpinLock {
    /// Takes it if it is free, or queues for it; returns whether it was taken.
    pub fn take(&mut self, task: TaskId) -> bool {
        if self.holder.is_none() {
            self.holder = Some(task);
            return true;
        }
        self.waiters.push_back(task);
        false
    }

    /// A waiter looks at the lock: takes it if it is free and, where the order counts, nobody came before.
    pub fn retry(&mut self, task: TaskId, in_order: bool) -> bool {
        let place = self.waiters.iter().position(|waiter| *waiter == task);
        let may = |place: &usize| self.holder.is_none() && (*place == 0 || !in_order);
        let Some(place) = place.filter(may) else { return false };
        self.holder = self.waiters.remove(place);
        true
    }

    /// Releases it to a waiter of which `runs` says that its vCPU runs.
    pub fn release_to_any_running(&mut self, runs: impl Fn(TaskId) -> bool) -> Release {
        self.holder = None;
        let place = self.waiters.iter().position(|waiter| runs(*waiter));
        self.holder = place.and_then(|place| self.waiters.remove(place));
        self.holder.map_or(Release::Free, Release::HandedTo)
    }

    /// Releases it in the order of arrival.
    pub fn release(&mut self) -> Release {
        self.holder = self.waiters.pop_front();
        self.holder.map_or(Release::Free, Release::HandedTo)
    }

    /// Releases it to the first waiter, if `runs` says that its vCPU runs.
    pub fn release_to_running(&mut self, runs: impl Fn(TaskId) -> bool) -> Release {
        self.holder = None;
        match self.waiters.front().copied() {
            None => Release::Free,
            Some(first) if runs(first) => self.release(),
            Some(first) => Release::Kick(first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contended() -> SpinLock {
        let mut lock = SpinLock::default();
        assert!(lock.take(TaskId(0)));
        assert!(!lock.take(TaskId(1)) && !lock.take(TaskId(2)));
        lock
    }

    #[test]
    fn is_handed_over_in_the_order_of_arrival() {
        let mut lock = contended();
        assert_eq!(lock.release(), Release::HandedTo(TaskId(1)));
        assert_eq!(lock.release(), Release::HandedTo(TaskId(2)));
        assert_eq!(lock.release(), Release::Free);
        assert!(lock.take(TaskId(3)));
    }

    #[test]
    fn a_test_and_set_lock_goes_to_whoever_runs() {
        let mut lock = contended();
        assert_eq!(lock.release_to_any_running(|task| task == TaskId(2)), Release::HandedTo(TaskId(2)));
        assert!(!lock.retry(TaskId(1), false), "it is held");
        assert_eq!(lock.release_to_any_running(|_| false), Release::Free);
        assert!(lock.take(TaskId(3)), "who arrives need not queue");
        assert!(!lock.take(TaskId(4)));
        assert_eq!(lock.release_to_any_running(|_| false), Release::Free);
        assert!(!lock.retry(TaskId(5), false), "one that does not wait");
        assert!(lock.retry(TaskId(4), false), "before the first");
        assert_eq!(lock.release_to_any_running(|_| true), Release::HandedTo(TaskId(1)));
    }

    #[test]
    fn a_paravirtual_lock_is_not_given_to_who_does_not_run_and_can_be_stolen() {
        let mut lock = contended();
        assert_eq!(lock.release_to_running(|_| false), Release::Kick(TaskId(1)));
        assert!(!lock.retry(TaskId(2), true), "the first waiter comes first");
        assert!(lock.take(TaskId(3)), "but who arrives may steal");
        assert!(!lock.retry(TaskId(1), true));
        assert_eq!(lock.release_to_running(|_| false), Release::Kick(TaskId(1)));
        assert!(lock.retry(TaskId(1), true));
        assert_eq!(lock.release_to_running(|_| true), Release::HandedTo(TaskId(2)));
    }
}
