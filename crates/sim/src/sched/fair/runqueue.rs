//! One CPU's runqueue: what runs, and what waits, in order of the policy's key.
//!
//! A runqueue is short (a few entities), so it is a sorted vector: no search tree is faster at that size, and nothing is
//! allocated once it has grown. The running entity is not in the vector.
//!
//! Invariants: `waiting` is sorted by key, first come first among equals; `weight` is the sum of weights, and `weighted` the
//! sum of weight x (vruntime - base), over `waiting`.

use super::policy::Share;

/// A waiting entity. A waiting entity's virtual times do not change, so they are copied here, to be found in one place.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The policy's key.
    pub key: i64,
    /// As in its [`Share`].
    pub vruntime: i64,
    /// As in its [`Share`].
    pub weight: u32,
    /// Number of the entity.
    pub entity: u32,
}

impl Waiter {
    /// One with that share.
    pub fn new(key: i64, share: &Share) -> Waiter {
        Waiter { key, vruntime: share.vruntime, weight: share.weight, entity: share.entity }
    }
}

/// A CPU's runqueue.
#[derive(Debug, Default)]
pub struct Runqueue {
    waiting: Vec<Waiter>,
    weight: i64,
    weighted: i64,
    base: i64,
    /// The running entity.
    pub current: Option<u32>,
    /// Weight of the running entity, else 0.
    pub current_weight: u32,
    /// The running entity has a quota.
    pub current_limited: bool,
    /// `pick` has been ordered and not yet been called.
    pub resched: bool,
    /// The CPU needs ticks.
    pub ticks: bool,
    /// Waiting entities that may run on other CPUs too.
    pub movable: u32,
    /// Until when the running entity is accounted for.
    pub since_ns: u64,
    /// When periodic balancing is due.
    pub balance_ns: u64,
    /// What runs here may not do so any more.
    pub unwelcome: bool,
    /// Entities that pause and will be back here, and the sum of their weights: load for balancing, and for nothing else.
    pub paused: (usize, u64),
    /// CFS: who should run next, because it preempts.
    pub next: Option<u32>,
    /// CFS: who should be passed over, because it yielded.
    pub skip: Option<u32>,
}

impl Runqueue {
    /// The waiting entities, by key.
    pub fn waiting(&self) -> &[Waiter] {
        &self.waiting
    }

    /// Runnable entities: the running and the waiting.
    pub fn count(&self) -> usize {
        self.waiting.len() + self.current.is_some() as usize
    }

    /// Sum of the weights of the runnable entities.
    pub fn load(&self) -> u64 {
        self.weight as u64 + self.current_weight as u64
    }

    /// Runnable entities and those that pause, as balancing counts them.
    pub fn balanced_count(&self) -> usize {
        self.count() + self.paused.0
    }

    /// Sum of the weights of the same. (Linux balances by averages that decay with a half-life of 32 ms: a pause of a few
    /// milliseconds hardly changes them.)
    pub fn balanced_load(&self) -> u64 {
        self.load() + self.paused.1
    }

    /// Nothing runs or waits.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// The virtual time that others are relative to. CFS: the least vruntime, and it never decreases. EEVDF: any time
    /// near the average, so that sums stay small.
    pub fn base(&self) -> i64 {
        self.base
    }

    /// Another base.
    pub fn rebase(&mut self, base: i64) {
        self.weighted -= self.weight * (base - self.base);
        self.base = base;
    }

    /// Adds one that waits.
    pub fn insert(&mut self, key: i64, share: &Share) {
        let at = self.waiting.partition_point(|other| other.key <= key);
        self.waiting.insert(at, Waiter::new(key, share));
        self.weight += share.weight as i64;
        self.weighted += share.weight as i64 * (share.vruntime - self.base);
    }

    /// Takes out the one at that place.
    pub fn remove(&mut self, at: usize) -> Waiter {
        let waiter = self.waiting.remove(at);
        self.weight -= waiter.weight as i64;
        self.weighted -= waiter.weight as i64 * (waiter.vruntime - self.base);
        waiter
    }

    /// Sums over the runnable entities: weight x (vruntime - base), and weight.
    pub fn sums(&self, current: Option<&Share>) -> (i64, i64) {
        current.map_or((self.weighted, self.weight), |current| {
            let weight = current.weight as i64;
            (self.weighted + weight * (current.vruntime - self.base), self.weight + weight)
        })
    }

    /// The runnable entities' mean vruntime by weight, rounded down; the base if there are none.
    pub fn average(&self, current: Option<&Share>) -> i64 {
        let (weighted, weight) = self.sums(current);
        if weight == 0 { self.base } else { self.base + weighted.div_euclid(weight) }
    }

    /// An entity leaves, or is switched to: nobody's preference for it is left.
    pub fn forget(&mut self, entity: u32) {
        self.next = self.next.filter(|&next| next != entity);
        self.skip = self.skip.filter(|&skip| skip != entity);
    }
}
