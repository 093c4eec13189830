//! EEVDF: earliest eligible virtual deadline first, the fair policy of Linux since 6.6, as of 6.18.
//!
//! An entity is eligible if it has had no more than its share: its vruntime is not past the average by weight. Of the
//! eligible, the one whose slice has the earliest virtual deadline runs; and once it runs it is protected until that
//! deadline (RUN_TO_PARITY). What it was behind or ahead (lag) is kept while it sleeps.
//!
//! Simplified: delayed dequeue. Linux (6.12 and later) keeps a sleeper that is ahead in the queue until the others have
//! caught up, so that it pays for what it had but no longer than that. Here it leaves the queue, its weight with it, and
//! its vruntime is compared with the average when it wakes.
//!
//! Left out: slices of an entity's own, buddies, and lazy preemption (a slice that is over asks for a switch at once).
//!
//! Source: Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995; behaviour of Linux 6.18.

use super::fair::{Arrival, Departure, Fair, Policy, Runqueue, Share};
use super::tunables::{BASE_SLICE_NS, Tunables};

/// An EEVDF scheduler for that many CPUs.
pub fn eevdf_with(cpus: usize, tunables: &Tunables) -> Fair<Eevdf> {
    Fair::new(cpus, tunables, Eevdf::new(tunables))
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Eevdf {
    slice_ns: u64,
    /// How long an entity is protected once it is switched to.
    protect_ns: u64,
    tick_ns: u64,
}

impl Eevdf {
    /// The policy with those constants.
    pub fn new(tunables: &Tunables) -> Eevdf {
        let slice_ns = tunables.base_slice_ns.max(1);
        let protect_ns = if tunables.run_to_parity { slice_ns } else { slice_ns.min(BASE_SLICE_NS) };
        Eevdf { slice_ns, protect_ns, tick_ns: tunables.tick_ns() }
    }

    /// The new deadline of an entity that ran past its old one.
    ///
    /// With others queued there are ticks, and the next slice starts now. Alone it runs without ticks, where Linux would have
    /// started a slice at each first tick after the last had ended: it is as far into its slice as it would be then.
    fn renewed(&self, alone: bool, share: &Share) -> i64 {
        let slice = share.scaled(self.slice_ns);
        if !alone {
            return share.vruntime + slice;
        }
        let step = share.scaled(self.slice_ns.next_multiple_of(self.tick_ns)).max(1);
        let into = (share.vruntime - share.deadline) % step;
        share.vruntime + slice - if into < slice { into } else { 0 }
    }
}

/// Whether one with that vruntime has had no more than its share. (Exact: no division. Of the products here, only this one
/// could overflow: one of little weight that ran for long without a tick, beside heavy ones.)
fn eligible(queue: &Runqueue, (weighted, weight): (i64, i64), vruntime: i64) -> bool {
    weighted as i128 >= (vruntime - queue.base()) as i128 * weight as i128
}

impl Policy for Eevdf {
    fn key(&self, share: &Share) -> i64 {
        share.deadline
    }

    fn place(
        &self,
        queue: &Runqueue,
        current: Option<&Share>,
        share: &mut Share,
        arrival: Arrival,
        base_was: Option<i64>,
    ) {
        let average = queue.average(current);
        if matches!(arrival, Arrival::Woken | Arrival::Resumed(_)) && share.lag < 0 {
            let caught_up = base_was.unwrap_or(average) - share.vruntime;
            share.lag = caught_up.clamp(share.lag, 0);
        }
        let (_, load) = queue.sums(current);
        // Its coming moves the average towards it, so that its lag would shrink: it is placed further out.
        let lag = if load == 0 { 0 } else { share.lag * (load + share.weight as i64) / load };
        share.vruntime = average - lag;
        let slice = share.scaled(self.slice_ns);
        share.deadline = share.vruntime
            + match arrival {
                Arrival::Moved => share.deadline,
                Arrival::Woken | Arrival::Resumed(_) => slice,
                // The others are, on average, half way through their slices.
                Arrival::New => slice / 2,
            };
    }

    fn leave(&self, queue: &mut Runqueue, current: Option<&Share>, share: &mut Share, how: Departure) {
        let limit = share.scaled((2 * self.slice_ns).max(self.tick_ns));
        share.lag = (queue.average(current) - share.vruntime).clamp(-limit, limit);
        if how == Departure::Moves {
            share.deadline -= share.vruntime;
        }
    }

    fn charged(&self, queue: &mut Runqueue, current: &mut Share) -> bool {
        let alone = queue.waiting().is_empty();
        if alone {
            queue.rebase(current.vruntime);
        }
        let over = current.vruntime >= current.deadline;
        if over {
            current.deadline = self.renewed(alone, current);
        }
        over || current.vruntime >= current.protected
    }

    fn tick(&self, _queue: &Runqueue, _current: &Share) -> bool {
        false // said by `charged`, which a tick calls
    }

    fn preempts(&self, queue: &mut Runqueue, current: &Share, woken: &Share) -> bool {
        self.choose(queue, Some(current)).is_some_and(|at| queue.waiting()[at].entity == woken.entity)
    }

    fn choose(&self, queue: &Runqueue, current: Option<&Share>) -> Option<usize> {
        let sums = queue.sums(current);
        let current = current.filter(|current| eligible(queue, sums, current.vruntime));
        if current.is_some_and(|current| current.vruntime < current.protected) {
            return None;
        }
        let best = queue.waiting().iter().position(|waiter| eligible(queue, sums, waiter.vruntime))?;
        let sooner = current.is_some_and(|current| current.deadline < queue.waiting()[best].key);
        if sooner { None } else { Some(best) }
    }

    fn start(&self, queue: &mut Runqueue, share: &mut Share) {
        // It is eligible, so its vruntime is near the average: sums stay small.
        queue.rebase(share.vruntime);
        share.protected = share.deadline.min(share.vruntime + share.scaled(self.protect_ns));
    }

    fn yields(&self, queue: &mut Runqueue, current: &mut Share) {
        // It forfeits the rest of its slice; but not slice after slice, or it would fall behind without a bound.
        if eligible(queue, queue.sums(Some(current)), current.vruntime) {
            current.vruntime = current.vruntime.max(current.deadline);
            current.deadline = current.vruntime + current.scaled(self.slice_ns);
        }
    }
}
