//! Bags: open batches, to which writers add objects until one is due.
//!
//! A bag is due when it is full, large or old. There are several per domain, so that writers seldom share one.

use crate::futex::{Held, Lock};
use crate::platform::now_ns;
use crate::retired::Retired;
#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread_local;
use std::cell::Cell;

const BAGS: usize = 8;

/// Objects that have no token yet.
#[derive(Default)]
pub(super) struct Bag {
    objects: Vec<Retired>,
    bytes: usize,
    opened_ns: u64,
}

impl Bag {
    fn push(&mut self, retired: Retired) {
        if self.objects.is_empty() {
            self.opened_ns = now_ns();
        }
        self.bytes += retired.bytes();
        self.objects.push(retired);
    }

    /// Takes the objects out. The bag keeps room for as many, not for the most that it ever held.
    fn take(&mut self) -> Vec<Retired> {
        self.bytes = 0;
        let capacity = self.objects.len();
        std::mem::replace(&mut self.objects, Vec::with_capacity(capacity))
    }
}

/// On lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Aligned(Lock<Bag>);

pub(super) struct Bags {
    bags: [Aligned; BAGS],
    /// Objects in all bags. Read before their locks are taken.
    count: AtomicUsize,
    /// A bag with this many objects is full; one with this many bytes is large.
    batch: usize,
    batch_bytes: usize,
    /// At this age a bag is due.
    deadline_ns: u64,
}

thread_local! {
    /// The bag that the thread tries first.
    static FIRST: Cell<usize> = const { Cell::new(usize::MAX) };
}
static NEXT_FIRST: AtomicUsize = AtomicUsize::new(0);

impl Bags {
    pub(super) fn new(batch: usize, batch_bytes: usize, deadline_ns: u64) -> Self {
        Self { bags: Default::default(), count: AtomicUsize::new(0), batch, batch_bytes, deadline_ns }
    }

    pub(super) fn are_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Puts an object into a bag, and takes the bag's content out when it is due, unless `stay`. Before the content leaves
    /// the bag, `begin` counts the caller as having objects in hand.
    pub(super) fn put<U>(
        &self,
        retired: Retired,
        stay: impl FnOnce() -> bool,
        begin: impl FnOnce() -> U,
    ) -> Option<(Vec<Retired>, U)> {
        let mut bag = self.some_bag();
        bag.push(retired);
        self.count.fetch_add(1, Ordering::SeqCst);
        (!stay() && self.is_due(&bag)).then(|| self.take_out(&mut bag, begin))
    }

    /// Puts an object into a bag, and leaves it there for the reclaimer thread. Whether the bag has just become full, or is
    /// large while the thread is `asleep`.
    pub(super) fn put_for_reclaimer(&self, retired: Retired, asleep: &AtomicBool) -> bool {
        let mut bag = self.some_bag();
        bag.push(retired);
        self.count.fetch_add(1, Ordering::SeqCst);
        bag.objects.len() == self.batch || (bag.bytes >= self.batch_bytes && asleep.load(Ordering::SeqCst))
    }

    fn take_out<U>(&self, bag: &mut Bag, begin: impl FnOnce() -> U) -> (Vec<Retired>, U) {
        let under_way = begin();
        let objects = bag.take();
        self.count.fetch_sub(objects.len(), Ordering::SeqCst);
        (objects, under_way)
    }

    /// The thread's own bag, or another one that is free.
    fn some_bag(&self) -> Held<'_, Bag> {
        if FIRST.get() == usize::MAX {
            FIRST.set(NEXT_FIRST.fetch_add(1, Ordering::Relaxed));
        }
        let first = FIRST.get();
        let free = (0..BAGS).find_map(|i| self.bags[(first + i) % BAGS].0.try_lock());
        free.unwrap_or_else(|| self.bags[first % BAGS].0.lock())
    }

    fn is_due(&self, bag: &Bag) -> bool {
        let objects = bag.objects.len();
        objects >= self.batch
            || bag.bytes >= self.batch_bytes
            || (objects > 0 && now_ns() - bag.opened_ns >= self.deadline_ns)
    }

    /// Empties all bags. The caller is counted as having objects in hand, or is `barrier`.
    pub(super) fn empty(&self) -> Vec<Retired> {
        let mut objects = Vec::new();
        for bag in &self.bags {
            objects.append(&mut bag.0.lock().take());
        }
        self.count.fetch_sub(objects.len(), Ordering::SeqCst);
        objects
    }

    /// Calls `close` with the content of each bag that is due and not in use. For `begin` see `put`.
    pub(super) fn close_due<U>(&self, begin: impl Fn() -> U, close: impl Fn(Vec<Retired>)) {
        for bag in &self.bags {
            let Some(mut bag) = bag.0.try_lock() else { continue };
            if !bag.objects.is_empty() && self.is_due(&bag) {
                let (objects, _under_way) = self.take_out(&mut bag, &begin);
                drop(bag);
                close(objects);
            }
        }
    }

    /// When the oldest bag that holds something was opened.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        let opened = |bag: &Aligned| {
            let bag = bag.0.lock();
            (!bag.objects.is_empty()).then_some(bag.opened_ns)
        };
        self.bags.iter().filter_map(opened).min()
    }

    /// Whether a bag is full or large.
    pub(super) fn has_full(&self) -> bool {
        self.bags.iter().any(|bag| {
            let bag = bag.0.lock();
            bag.objects.len() >= self.batch || bag.bytes >= self.batch_bytes
        })
    }

    /// Locks all bags, before a fork.
    pub(super) fn acquire(&self) {
        self.bags.iter().for_each(|bag| bag.0.acquire());
    }

    /// # Safety
    /// The caller has called `acquire`.
    pub(super) unsafe fn release(&self) {
        // SAFETY: the caller holds the locks, without guards.
        self.bags.iter().for_each(|bag| unsafe { bag.0.release() });
    }

    /// For the child of a fork: sets the count anew, because other threads may have been about to change it. Returns
    /// objects and bytes.
    pub(super) fn recount(&self) -> (usize, usize) {
        let sizes = self.bags.iter().map(|bag| {
            let bag = bag.0.lock();
            (bag.objects.len(), bag.bytes)
        });
        let all = sizes.fold((0, 0), |(objects, bytes), one| (objects + one.0, bytes + one.1));
        self.count.store(all.0, Ordering::Relaxed);
        all
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::retired::free_all;

    #[test]
    fn a_bag_does_not_keep_the_room_of_a_burst() {
        let fill = |bag: &mut Bag, n| (0..n).for_each(|_| bag.push(Retired::of_callback(Box::new(|| ()), 0)));
        let mut bag = Bag::default();
        for n in [10_000, 64, 64] {
            fill(&mut bag, n);
            let taken = bag.take();
            assert_eq!(taken.len(), n);
            // SAFETY: nobody has seen them.
            unsafe { free_all(taken) };
        }
        fill(&mut bag, 64);
        assert!(bag.objects.capacity() < 200, "{}", bag.objects.capacity());
        // SAFETY: as above.
        unsafe { free_all(bag.take()) };
    }
}
