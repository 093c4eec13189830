//! A vCPU's timers: the wheel's, in jiffies, run in softirq; and high-resolution ones, run in the clock's interrupt.

use crate::guest::ids::TaskId;

/// A sleep that a timer ends; stale if the task has slept again since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleeper {
    /// Who sleeps.
    pub task: TaskId,
    /// Which sleep.
    pub sleep: u32,
}

/// Timers of one kind on one vCPU, ordered by deadline; few at a time, so a sorted list serves.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// Latest first, so that the next one is at the end; those of equal deadline in reverse order of arrival.
    pending: Vec<(u64, Sleeper)>,
}

impl Timers {
    /// Adds one.
    pub fn add(&mut self, deadline: u64, sleeper: Sleeper) {
        let place = self.pending.partition_point(|(other, _)| *other > deadline);
        self.pending.insert(place, (deadline, sleeper));
    }

    /// The next deadline.
    pub fn next(&self) -> Option<u64> {
        self.pending.last().map(|(deadline, _)| *deadline)
    }

    /// Takes the next timer that is due at `now`.
    pub fn expire(&mut self, now: u64) -> Option<Sleeper> {
        (self.next()? <= now).then(|| self.pending.pop().expect("there is a next one").1)
    }

    /// Takes one out, if it has not expired: its sleeper was woken otherwise.
    pub fn cancel(&mut self, sleeper: Sleeper) {
        self.pending.retain(|(_, other)| *other != sleeper);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(number: u32) -> Sleeper {
        Sleeper { task: TaskId(number), sleep: 0 }
    }

    #[test]
    fn expire_in_order_and_never_early() {
        let mut timers = Timers::default();
        for (deadline, number) in [(30, 0), (10, 1), (20, 2), (10, 3)] {
            timers.add(deadline, sleeper(number));
        }
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.expire(9), None);
        assert_eq!(timers.expire(10), Some(sleeper(1)));
        assert_eq!(timers.expire(25), Some(sleeper(3)));
        assert_eq!(timers.expire(25), Some(sleeper(2)));
        assert_eq!(timers.expire(25), None);
        assert_eq!(timers.next(), Some(30));
        timers.cancel(sleeper(1));
        assert_eq!(timers.next(), Some(30), "that one has expired");
        timers.cancel(sleeper(0));
        assert_eq!(timers.next(), None);
    }
}
