//! Latent objects are freed, but some CPU may still read them until a grace period has passed. An allocator that knows
//! of them keeps them separately, by CPU and cache. As soon as the grace period is over it hands them out again,
//! without a callback for each, and without returning them to their slabs.
//!
//! A CPU first takes its own objects. Before a cache grows, the CPU takes objects of another CPU. Objects that no
//! allocation needed for a while go back to their slabs: their number is the smallest number that was ready at any
//! moment of that time.
//!
//! Invariants: an object is handed out or returned to its slab once, and only when a full grace period has passed since
//! it was freed.
//!
//! Source: the idea of Prasad and Gopinath, "Prudent Memory Reclamation in Procrastination-Based Synchronization"
//! (Prudence), ASPLOS 2016; the structure is our own.

use std::collections::VecDeque;

use crate::guest::memory::{Cache, Object};
use crate::guest::rcu::Cookie;

/// Most objects that a CPU takes from another one at a time.
const MOVED_AT_ONCE: usize = 64;
/// Most objects that a CPU returns to their slabs in a tick.
const RETURNED_AT_ONCE: usize = 1_000;

/// Settings of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Objects that were not needed for this many jiffies go back to their slabs.
    pub keep_jiffies: u64,
    /// A cache that is about to grow while this share of its objects is latent requests a grace period, in per cent.
    pub short_percent: u64,
    /// Whether the cache then requests an expedited grace period.
    pub expedite: bool,
}

/// Latent objects of a cache on a CPU.
#[derive(Clone, Debug, Default)]
struct Stock {
    /// Objects whose grace period had not passed at the last check, oldest first.
    waiting: VecDeque<Object>,
    /// Moments at which waiting objects were freed, each with the number of these objects.
    moments: VecDeque<(Cookie, usize)>,
    /// Objects that can be handed out. The last one is the warmest in the CPU's cache.
    ready: Vec<Object>,
    /// The smallest number of ready objects in this period.
    least: usize,
    /// Number of ready objects to return to their slabs.
    surplus: usize,
}

impl Stock {
    /// Moves objects whose grace period has passed to the ready ones.
    fn refresh(&mut self, has_passed: impl Fn(Cookie) -> bool) {
        while let Some(&(cookie, count)) = self.moments.front()
            && has_passed(cookie)
        {
            self.moments.pop_front();
            self.ready.extend(self.waiting.drain(..count));
        }
    }

    fn take(&mut self) -> Option<Object> {
        let object = self.ready.pop();
        self.least = self.least.min(self.ready.len());
        self.surplus = self.surplus.min(self.ready.len());
        object
    }
}

/// Latent objects of a guest.
#[derive(Clone, Debug)]
pub struct Latent {
    pub(super) settings: Settings,
    /// By cache, then CPU.
    stocks: Vec<Vec<Stock>>,
    /// When each CPU's period ends, in jiffies.
    period_ends: Vec<u64>,
    /// The last moment for which a grace period was requested because a cache was about to grow.
    asked: Option<Cookie>,
    /// Numbers of objects that were put so far, and of those that were handed out or returned to their slabs.
    came: u64,
    left: u64,
}

impl Latent {
    /// Begins without latent objects, on `cpus` CPUs.
    pub fn new(settings: Settings, cpus: usize) -> Latent {
        Latent { settings, stocks: Vec::new(), period_ends: vec![0; cpus], asked: None, came: 0, left: 0 }
    }

    fn stocks(&mut self, cache: Cache) -> &mut Vec<Stock> {
        let (number, cpus) = (usize::from(cache.0), self.period_ends.len());
        if self.stocks.len() <= number {
            self.stocks.resize_with(number + 1, || vec![Stock::default(); cpus]);
        }
        &mut self.stocks[number]
    }

    /// Keeps an object that is freed at the moment `now`. Returns whether it is the CPU's first object of this moment
    /// and cache. If so, the caller must request its grace period.
    pub fn put(&mut self, cpu: usize, cache: Cache, object: Object, now: Cookie) -> bool {
        self.came += 1;
        let stock = &mut self.stocks(cache)[cpu];
        stock.waiting.push_back(object);
        match stock.moments.back_mut() {
            Some((moment, count)) if *moment == now => {
                *count += 1;
                false
            }
            _ => {
                stock.moments.push_back((now, 1));
                true
            }
        }
    }

    /// Takes an object of this CPU that can be used again.
    pub fn take(&mut self, cpu: usize, cache: Cache, has_passed: impl Fn(Cookie) -> bool) -> Option<Object> {
        let stock = &mut self.stocks(cache)[cpu];
        if stock.ready.is_empty() {
            stock.refresh(has_passed);
        }
        let object = stock.take();
        self.left += u64::from(object.is_some());
        object
    }

    /// Moves ready objects to this CPU from the CPU that has most of them. Returns how many.
    pub fn borrow(&mut self, cpu: usize, cache: Cache, has_passed: impl Fn(Cookie) -> bool) -> usize {
        let stocks = self.stocks(cache);
        stocks.iter_mut().for_each(|stock| stock.refresh(&has_passed));
        // If several CPUs have equally many, the first one counts.
        let Some((_, from)) =
            stocks.iter().enumerate().map(|(other, stock)| (stock.ready.len(), usize::MAX - other)).max()
        else {
            return 0;
        };
        let lender = &mut stocks[usize::MAX - from];
        let rest = lender.ready.len() - lender.ready.len().div_ceil(2).min(MOVED_AT_ONCE);
        let moved = lender.ready.split_off(rest);
        lender.least = lender.least.min(rest);
        lender.surplus = lender.surplus.min(rest);
        stocks[cpu].ready.extend(&moved);
        moved.len()
    }

    /// Whether to request a grace period for a cache of `objects` objects that is about to grow: enough of them are
    /// latent, and their grace period was not requested before. If this returns true, the caller must request it.
    pub fn must_ask(
        &mut self,
        cache: Cache,
        objects: u64,
        now: Cookie,
        has_passed: impl Fn(Cookie) -> bool,
    ) -> bool {
        let waiting: u64 = self.stocks(cache).iter().map(|stock| waiting(stock, &has_passed)).sum();
        let is_short = waiting * 100 >= objects * self.settings.short_percent && waiting > 0;
        is_short && self.asked.replace(now) != Some(now)
    }

    /// Called at a tick of a CPU. Puts objects that are to be returned to their slabs into `surplus`.
    pub fn tick(
        &mut self,
        cpu: usize,
        jiffies: u64,
        has_passed: impl Fn(Cookie) -> bool,
        surplus: &mut Vec<Object>,
    ) {
        let ends = jiffies >= self.period_ends[cpu];
        if ends {
            self.period_ends[cpu] = jiffies + self.settings.keep_jiffies;
        }
        for stocks in &mut self.stocks {
            let stock = &mut stocks[cpu];
            stock.refresh(&has_passed);
            if ends {
                stock.surplus = std::mem::replace(&mut stock.least, stock.ready.len());
            }
            let count = stock.surplus.min(stock.ready.len()).min(RETURNED_AT_ONCE - surplus.len());
            stock.surplus -= count;
            // The coldest objects go first.
            surplus.extend(stock.ready.drain(..count));
            stock.least = stock.least.min(stock.ready.len());
        }
        self.left += surplus.len() as u64;
    }

    /// Takes all objects that can be used again, because memory is short.
    pub fn take_all(&mut self, has_passed: impl Fn(Cookie) -> bool, into: &mut Vec<Object>) {
        for stock in self.stocks.iter_mut().flatten() {
            stock.refresh(&has_passed);
            into.append(&mut stock.ready);
            (stock.least, stock.surplus) = (0, 0);
        }
        self.left += into.len() as u64;
    }

    /// Number of objects whose grace period has not passed.
    pub fn waiting(&self, has_passed: impl Fn(Cookie) -> bool) -> u64 {
        self.stocks.iter().flatten().map(|stock| waiting(stock, &has_passed)).sum()
    }

    /// Bytes of a CPU's objects whose grace period has not passed.
    pub fn waiting_bytes(
        &self,
        cpu: usize,
        has_passed: impl Fn(Cookie) -> bool,
        bytes_of: impl Fn(Cache) -> u64,
    ) -> u64 {
        let caches = self.stocks.iter().enumerate();
        caches.map(|(n, stocks)| waiting(&stocks[cpu], &has_passed) * bytes_of(Cache(n as u16))).sum()
    }

    /// Number of all latent objects, including those that can be used again.
    pub fn held(&self) -> u64 {
        self.came - self.left
    }

    /// Whether this CPU has latent objects.
    pub fn has_any(&self, cpu: usize) -> bool {
        self.stocks.iter().any(|stocks| !stocks[cpu].waiting.is_empty() || !stocks[cpu].ready.is_empty())
    }

    /// Checks that no object is lost.
    ///
    /// # Errors
    /// The numbers that do not match.
    pub fn check(&self) -> Result<(), String> {
        let there: usize =
            self.stocks.iter().flatten().map(|stock| stock.waiting.len() + stock.ready.len()).sum();
        match self.held() == there as u64 {
            true => Ok(()),
            false => Err(format!("{} latent objects came, {} left, {there} are there", self.came, self.left)),
        }
    }
}

/// Number of objects of a stock whose grace period has not passed.
fn waiting(stock: &Stock, has_passed: &impl Fn(Cookie) -> bool) -> u64 {
    let open = stock.moments.iter().rev().take_while(|(cookie, _)| !has_passed(*cookie));
    open.map(|(_, count)| *count as u64).sum()
}

#[cfg(test)]
mod tests;
