//! Latent objects: freed, but some CPU may still read them until a grace period has passed. An allocator that knows of
//! them keeps them apart, by CPU and cache, and hands them out again as soon as that grace period is over, without a
//! callback for each and without their slabs.
//!
//! A CPU takes its own objects, then those of another CPU, before a cache grows. Objects that no allocation needed for a
//! while go back to their slabs: as many as the smallest number that lay ready during that time.
//!
//! Invariants: an object is handed out or given back once, and only after a full grace period since it came.
//!
//! Source: the idea of Prasad and Gopinath, "Prudent Memory Reclamation in Procrastination-Based Synchronization" (Prudence),
//! ASPLOS 2016; the structure is our own.

use std::collections::VecDeque;

use crate::guest::memory::{Cache, Object};
use crate::guest::rcu::Cookie;

/// Objects that a CPU takes from another one at a time.
const MOVED_AT_ONCE: usize = 64;
/// Objects that a CPU gives back in a tick.
const RETURNED_AT_ONCE: usize = 1_000;

/// What the allocator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Objects that were not needed for so many jiffies go back to their slabs.
    pub keep_jiffies: u64,
    /// A cache that grows while this share of its objects is latent asks for a grace period, in per cent.
    pub short_percent: u64,
    /// It asks for an expedited one.
    pub expedite: bool,
}

/// Latent objects of a cache on a CPU.
#[derive(Clone, Debug, Default)]
struct Stock {
    /// Those whose grace period had not passed when that was asked last, oldest first.
    waiting: VecDeque<Object>,
    /// How many of them came at the same moment, by moment.
    moments: VecDeque<(Cookie, usize)>,
    /// Those that can be handed out; the last one is the warmest.
    ready: Vec<Object>,
    /// The smallest number of ready objects in this period.
    least: usize,
    /// Ready objects to give back.
    surplus: usize,
}

impl Stock {
    /// Looks which grace periods have passed.
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
    /// The last moment for which a grace period was asked because a cache grew.
    asked: Option<Cookie>,
    /// Objects that came so far, and those that were handed out or given back.
    came: u64,
    left: u64,
}

impl Latent {
    /// None yet, on that many CPUs.
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

    /// An object that was freed at that moment. Says whether it is the CPU's first object of that moment and cache: somebody
    /// must then ask for its grace period.
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

    /// An object of that CPU that can be used again.
    pub fn take(&mut self, cpu: usize, cache: Cache, has_passed: impl Fn(Cookie) -> bool) -> Option<Object> {
        let stock = &mut self.stocks(cache)[cpu];
        if stock.ready.is_empty() {
            stock.refresh(has_passed);
        }
        let object = stock.take();
        self.left += u64::from(object.is_some());
        object
    }

    /// Moves ready objects of the CPU that has most of them to this one; answers how many.
    pub fn borrow(&mut self, cpu: usize, cache: Cache, has_passed: impl Fn(Cookie) -> bool) -> usize {
        let stocks = self.stocks(cache);
        stocks.iter_mut().for_each(|stock| stock.refresh(&has_passed));
        // Of equals the first.
        let Some((_, from)) =
            stocks.iter().enumerate().map(|(other, stock)| (stock.ready.len(), usize::MAX - other)).max()
        else {
            return 0;
        };
        let lender = &mut stocks[usize::MAX - from];
        let rest = lender.ready.len() - lender.ready.len().div_ceil(2).min(MOVED_AT_ONCE);
        let moved = lender.ready.split_off(rest);
        lender.least = lender.least.min(rest);
        stocks[cpu].ready.extend(&moved);
        moved.len()
    }

    /// Whether a cache of that many objects that is about to grow is short because of latent ones, and nobody has asked for
    /// their grace period yet. Who is told so asks.
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

    /// A tick of a CPU: puts into `surplus` objects to be given back to their slabs.
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
            // The coldest first.
            surplus.extend(stock.ready.drain(..count));
            stock.least = stock.least.min(stock.ready.len());
        }
        self.left += surplus.len() as u64;
    }

    /// Takes all objects that can be used again: memory is short.
    pub fn take_all(&mut self, has_passed: impl Fn(Cookie) -> bool, into: &mut Vec<Object>) {
        for stock in self.stocks.iter_mut().flatten() {
            stock.refresh(&has_passed);
            into.append(&mut stock.ready);
            (stock.least, stock.surplus) = (0, 0);
        }
        self.left += into.len() as u64;
    }

    /// Objects whose grace period has not passed.
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

    /// All objects, also those that can be used again.
    pub fn held(&self) -> u64 {
        self.came - self.left
    }

    /// Whether that CPU has any.
    pub fn has_any(&self, cpu: usize) -> bool {
        self.stocks.iter().any(|stocks| !stocks[cpu].waiting.is_empty() || !stocks[cpu].ready.is_empty())
    }

    /// Checks that no object is lost.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let there: usize =
            self.stocks.iter().flatten().map(|stock| stock.waiting.len() + stock.ready.len()).sum();
        match self.held() == there as u64 {
            true => Ok(()),
            false => Err(format!("{} latent objects came, {} left, {there} are there", self.came, self.left)),
        }
    }
}

/// Objects of a stock whose grace period has not passed.
fn waiting(stock: &Stock, has_passed: &impl Fn(Cookie) -> bool) -> u64 {
    let open = stock.moments.iter().rev().take_while(|(cookie, _)| !has_passed(*cookie));
    open.map(|(_, count)| *count as u64).sum()
}

#[cfg(test)]
mod tests;
