//! CFS: the completely fair scheduler, the fair policy of Linux before 6.6, as of 6.1.
//!
//! The entity with the least vruntime runs. It gives way at a tick once it has had its part of the latency, or when it
//! woke another that is far behind. A sleeper is placed a little behind the others, so that it runs soon.
//!
//! Left out: the last buddy (with 8 and more runnable entities, who was preempted is favoured) and group scheduling.
//!
//! Source: behaviour of Linux 6.1.

use super::Tunables;
use super::fair::{Arrival, Departure, Fair, Policy, Runqueue, Share, Waiter, scaled};

/// A CFS scheduler for that many CPUs.
pub fn cfs_with(cpus: usize, tunables: &Tunables) -> Fair<Cfs> {
    Fair::new(cpus, tunables, Cfs::new(tunables))
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Cfs {
    latency_ns: u64,
    min_granularity_ns: u64,
    wakeup_granularity_ns: u64,
    /// What a sleeper is placed behind the others.
    bonus_ns: u64,
}

/// One that is considered to run, and its place in the queue (none for the running one).
type Candidate = (Waiter, Option<usize>);

impl Cfs {
    /// The policy with those constants.
    pub fn new(tunables: &Tunables) -> Cfs {
        Cfs {
            latency_ns: tunables.latency_ns,
            min_granularity_ns: tunables.min_granularity_ns.max(1),
            wakeup_granularity_ns: tunables.wakeup_granularity_ns,
            bonus_ns: tunables.latency_ns >> tunables.gentle_sleepers as u32,
        }
    }

    /// Run time that each of `count` entities of the same weight has in turn.
    pub fn equal_slice_ns(&self, count: usize) -> u64 {
        self.slice_ns(count, count as u64, 1)
    }

    /// Run time that one of `count` entities with that sum of weights has in turn.
    fn slice_ns(&self, count: usize, load: u64, weight: u32) -> u64 {
        let few = self.latency_ns.div_ceil(self.min_granularity_ns);
        let count = count as u64;
        let period_ns = if count > few { count * self.min_granularity_ns } else { self.latency_ns };
        (period_ns * weight as u64 / load.max(1)).max(self.min_granularity_ns)
    }

    /// Whether one of that weight with vruntime `behind` is so far behind `vruntime` that it should run instead.
    fn far_behind(&self, vruntime: i64, behind: i64, weight: u32) -> bool {
        vruntime - behind > scaled(self.wakeup_granularity_ns, weight)
    }

    /// Whether `other` may run in place of `least`, the one with the least vruntime.
    fn near(&self, other: Candidate, least: Candidate) -> bool {
        !self.far_behind(other.0.vruntime, least.0.vruntime, least.0.weight)
    }
}

/// The waiting one at that place.
fn waiter(queue: &Runqueue, at: usize) -> Option<Candidate> {
    queue.waiting().get(at).map(|&waiter| (waiter, Some(at)))
}

/// The one of the two with less vruntime; the first if they have the same.
fn lesser(first: Option<Candidate>, second: Option<Candidate>) -> Option<Candidate> {
    match (first, second) {
        (Some(a), Some(b)) => Some(if b.0.vruntime < a.0.vruntime { b } else { a }),
        (a, b) => a.or(b),
    }
}

impl Policy for Cfs {
    fn key(&self, share: &Share) -> i64 {
        share.vruntime
    }

    fn place(
        &self,
        queue: &Runqueue,
        _current: Option<&Share>,
        share: &mut Share,
        arrival: Arrival,
        base_was: Option<i64>,
    ) {
        share.vruntime += base_was.map_or(0, |base_was| queue.base() - base_was);
        match arrival {
            Arrival::Moved => {}
            Arrival::Woken => {
                share.vruntime = share.vruntime.max(queue.base() - self.bonus_ns as i64);
            }
            Arrival::Resumed(keeps_ns) => {
                share.vruntime = share.vruntime.max(queue.base() - share.scaled(keeps_ns));
            }
            // It starts as if it had just had its turn (feature START_DEBIT).
            Arrival::New => {
                let load = queue.load() + share.weight as u64;
                let slice_ns = self.slice_ns(queue.count() + 1, load, share.weight);
                share.vruntime = queue.base() + share.scaled(slice_ns);
            }
        }
    }

    fn leave(&self, queue: &mut Runqueue, _current: Option<&Share>, share: &mut Share, how: Departure) {
        queue.forget(share.entity);
        if how == Departure::Sleeps
            && let Some(first) = queue.waiting().first()
        {
            queue.rebase(queue.base().max(first.vruntime));
        }
    }

    fn charged(&self, queue: &mut Runqueue, current: &mut Share) -> bool {
        let first = queue.waiting().first().map_or(current.vruntime, |first| first.vruntime);
        queue.rebase(queue.base().max(first.min(current.vruntime)));
        false // said by `tick`
    }

    fn tick(&self, queue: &Runqueue, current: &Share) -> bool {
        let slice_ns = self.slice_ns(queue.count(), queue.load(), current.weight).min(self.latency_ns);
        let ran_ns = current.ran_ns - current.ran_before_ns;
        if ran_ns > slice_ns {
            return true;
        }
        let first = queue.waiting()[0].vruntime;
        ran_ns >= self.min_granularity_ns && current.vruntime - first > slice_ns as i64
    }

    fn preempts(&self, queue: &mut Runqueue, current: &Share, woken: &Share) -> bool {
        let preempts = self.far_behind(current.vruntime, woken.vruntime, woken.weight);
        if preempts {
            queue.next = Some(woken.entity);
        }
        preempts
    }

    fn choose(&self, queue: &Runqueue, current: Option<&Share>) -> Option<usize> {
        let current = current.map(|share| (Waiter::new(share.vruntime, share), None));
        let least = lesser(waiter(queue, 0), current)?;
        let mut chosen = least;
        if queue.skip == Some(least.0.entity) {
            let second = if least.1.is_none() { waiter(queue, 0) } else { lesser(waiter(queue, 1), current) };
            chosen = second.filter(|&second| self.near(second, least)).unwrap_or(least);
        }
        if let Some(next) = queue.next
            && let Some(at) = queue.waiting().iter().position(|waiter| waiter.entity == next)
        {
            chosen = waiter(queue, at).filter(|&next| self.near(next, least)).unwrap_or(chosen);
        }
        chosen.1
    }

    fn start(&self, queue: &mut Runqueue, share: &mut Share) {
        queue.forget(share.entity);
        share.ran_before_ns = share.ran_ns;
    }

    fn yields(&self, queue: &mut Runqueue, current: &mut Share) {
        queue.next = None;
        queue.skip = Some(current.entity);
    }
}
