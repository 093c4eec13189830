//! From retired to freed.
//!
//! An object goes into a bag; a bag that is full, large or old is closed: it gets a token and joins the queue
//! of batches; a batch whose token has passed is freed by whoever comes by: the next call that retires,
//! `barrier`, or the reclaimer thread. With batches of one the same call does it all and touches neither bag
//! nor queue.
//!
//! Invariants:
//! - Frees and callbacks run outside of locks, so that they may retire. What they retire is only put into a
//!   bag; the call that runs them goes on until nothing is due, so that a long chain needs no stack.
//! - A callback that panics keeps no other from being run, and its own room is given back.
//! - A callback may own the last handle of its own domain: whoever drops another handle frees what waits first.
//! - An object is freed after its token has passed AND no slot, read after that, pins it.

use crate::clock::now_ns;
use crate::core::Core;
use crate::futex::{self, Lock};
use crate::garbage::{Freed, Garbage};
use crate::options::{AtLimit, Options};
use crate::record::announce;
use crate::retired::{Bag, Batch, Queue, Retired, discard, free_all};
#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use crate::sync::thread_local;
use crate::trace;
use crate::under_way::UnderWay;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// How many objects are freed between two looks at the time.
const PORTION: usize = 64;
/// Bags per domain: writers seldom share one.
const BAGS: usize = 8;

#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Shard(pub(crate) Lock<Bag>);

/// The garbage of a domain and its way out.
pub(crate) struct Reclaim {
    pub(crate) core: Arc<Core>,
    pub(crate) garbage: Garbage,
    pub(crate) bags: [Shard; BAGS],
    pub(crate) queue: Lock<Queue>,
    /// Objects in the queue. Read before its lock is taken.
    queued: AtomicUsize,
    /// Objects in bags. Read before their locks are taken.
    pub(crate) bagged: AtomicUsize,
    /// Changes when frees have ended that a barrier waits for.
    pub(crate) freed: AtomicU32,
    /// One barrier at a time: the phases of `Queue::running` are two. The thread whose it is, else 0.
    pub(crate) barrier: Lock<AtomicI32>,
    /// Whether a reclaimer thread does the waiting and freeing; and what wakes it.
    pub(crate) reclaimer: AtomicBool,
    pub(crate) work: AtomicU32,
    pub(crate) asleep: AtomicBool,
    pub(crate) at_limit: AtLimit,
    batch: usize,
    pub(crate) deadline_ns: u64,
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

impl Reclaim {
    pub(crate) fn new(core: Arc<Core>, options: &Options) -> Self {
        Self {
            core,
            garbage: Garbage::new(options.limit_objects, options.limit_bytes),
            bags: Default::default(),
            queue: Lock::default(),
            queued: AtomicUsize::new(0),
            bagged: AtomicUsize::new(0),
            freed: AtomicU32::new(0),
            barrier: Lock::new(AtomicI32::new(0)),
            reclaimer: AtomicBool::new(false),
            work: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            at_limit: options.at_limit,
            batch: options.batch,
            deadline_ns: options.deadline_ns,
        }
    }

    /// Accepts an object for which there is room.
    pub(crate) fn accept(&self, retired: Retired) {
        if self.reclaimer.load(Ordering::Relaxed) {
            let full = self.put_for_reclaimer(retired);
            self.wake_reclaimer(full);
        } else if self.batch == 1 && !self.puts_aside() {
            self.accept_promptly(retired);
        } else {
            if let Some((objects, _under_way)) = self.put(retired) {
                self.close(objects);
            }
            self.free_some_due();
        }
    }

    /// A batch of one: token, fence and free in one go, if the readers permit. What is only for statistics comes
    /// after the free.
    fn accept_promptly(&self, retired: Retired) {
        let (token, fence) = self.core.start_timed();
        let Some(fence) = fence else {
            self.enqueue_awaited(token, retired);
            return self.free_some_due();
        };
        let passed_ns = if self.core.check(token) {
            Some(fence.call_end_ns().unwrap_or_else(now_ns))
        } else {
            self.core.check_patiently(token, self.core.patience_ns).then(now_ns)
        };
        match passed_ns {
            Some(passed_ns) if !retired.is_held(&self.core.pinned()) => {
                let count = Freed::by_its_end(&self.garbage, 1, retired.bytes());
                // SAFETY: the token was taken after the object was unlinked and has passed; no slot pins the
                // object.
                self.freeing(|| unsafe { retired.free() });
                drop(count);
                self.core.note_duration(passed_ns - fence.from_ns);
            }
            _ => self.enqueue(Batch { token, closed_ns: fence.from_ns, objects: vec![retired] }),
        }
        self.free_some_due();
    }

    /// Puts an object into a bag, and takes the bag's content out when it is due.
    fn put(&self, retired: Retired) -> Option<(Vec<Retired>, UnderWay<'_>)> {
        let mut bag = self.some_bag();
        bag.push(retired);
        self.bagged.fetch_add(1, Ordering::SeqCst);
        (!self.puts_aside() && self.is_due(&bag)).then(|| self.take_out(&mut bag))
    }

    /// Puts an object into a bag, and leaves it there. Whether the bag has just become full.
    fn put_for_reclaimer(&self, retired: Retired) -> bool {
        let mut bag = self.some_bag();
        bag.push(retired);
        self.bagged.fetch_add(1, Ordering::SeqCst);
        bag.objects.len() == self.batch
            || (bag.bytes >= self.garbage.batch_bytes() && self.asleep.load(Ordering::SeqCst))
    }

    /// Takes a bag's content out, on its way to the queue. A barrier waits for it from before it leaves the bag.
    fn take_out(&self, bag: &mut Bag) -> (Vec<Retired>, UnderWay<'_>) {
        let under_way = self.under_way();
        let objects = bag.take();
        self.bagged.fetch_sub(objects.len(), Ordering::SeqCst);
        (objects, under_way)
    }

    /// The thread's bag, or one that is free.
    fn some_bag(&self) -> futex::Held<'_, Bag> {
        if SHARD.get() == usize::MAX {
            SHARD.set(NEXT_SHARD.fetch_add(1, Ordering::Relaxed));
        }
        let mine = SHARD.get();
        let free = (0..BAGS).find_map(|i| self.bags[(mine + i) % BAGS].0.try_lock());
        free.unwrap_or_else(|| self.bags[mine % BAGS].0.lock())
    }

    fn is_due(&self, bag: &Bag) -> bool {
        let objects = bag.objects.len();
        objects >= self.batch
            || bag.bytes >= self.garbage.batch_bytes()
            || (objects > 0 && now_ns() - bag.opened_ns >= self.deadline_ns)
    }

    pub(crate) fn close(&self, objects: Vec<Retired>) -> u64 {
        let closed_ns = now_ns();
        let token = self.core.start();
        if !objects.is_empty() {
            self.enqueue(Batch { token, closed_ns, objects });
        }
        token
    }

    fn enqueue(&self, batch: Batch) {
        self.queued.fetch_add(batch.objects.len(), Ordering::Relaxed);
        self.queue.lock().add(batch, false);
    }

    /// Queues an object whose fence is not complete, together with others: while a CPU is away there may be very many. To
    /// grow a long queue may remap memory, and the TLB shootdown would wait for the CPU that is away.
    fn enqueue_awaited(&self, token: u64, retired: Retired) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        // What is complete by now is not to wait for a later fence.
        self.core.note_served();
        let mut queue = self.queue.lock();
        if let Some(last) = queue.open_batch()
            && last.objects.len() < PORTION
            && !self.core.is_fenced(last.token)
        {
            last.objects.push(retired);
            // To wait for the later token is to wait for the earlier one.
            last.token = last.token.max(token);
            return;
        }
        let mut objects = Vec::with_capacity(PORTION);
        objects.push(retired);
        queue.add(Batch { token, closed_ns: now_ns(), objects }, true);
    }

    /// Closes every bag, in one batch; the newest token.
    pub(crate) fn close_all(&self) -> u64 {
        let _under_way = self.under_way();
        let objects = self.empty_bags();
        self.close(objects)
    }

    /// Takes out what all bags hold. The caller is counted as under way, or is `barrier`.
    pub(crate) fn empty_bags(&self) -> Vec<Retired> {
        let mut objects = Vec::new();
        for shard in &self.bags {
            objects.append(&mut shard.0.lock().take());
        }
        self.bagged.fetch_sub(objects.len(), Ordering::SeqCst);
        objects
    }

    /// Closes the bags that are due.
    fn close_due(&self) {
        if self.bagged.load(Ordering::SeqCst) == 0 || self.reclaimer.load(Ordering::Relaxed) {
            return;
        }
        for shard in &self.bags {
            let Some(mut bag) = shard.0.try_lock() else { continue };
            if !bag.objects.is_empty() && self.is_due(&bag) {
                let (objects, _under_way) = self.take_out(&mut bag);
                drop(bag);
                self.close(objects);
            }
        }
    }

    /// Frees whatever is due, and whatever becomes due by it. Never waits. Does nothing within a callback.
    pub(crate) fn free_due(&self) {
        self.free_due_for(u64::MAX);
    }

    /// As `free_due`, for a call that retires: it stops when half of the time that it may take is over. What has waited for a
    /// CPU that was away for long is freed by many calls.
    pub(crate) fn free_some_due(&self) {
        self.free_due_for(self.core.call_limit_ns / 2);
    }

    /// As `free_due`, and stops between two portions when `ns` are over.
    pub(crate) fn free_due_for(&self, ns: u64) {
        // While a panic unwinds, that of a callback would end the process.
        if self.puts_aside() || std::thread::panicking() {
            return;
        }
        let (mut begun_ns, mut panic) = (None, None);
        loop {
            self.close_due();
            if self.queued.load(Ordering::Relaxed) == 0 {
                break;
            }
            let begun_ns = *begun_ns.get_or_insert_with(now_ns);
            // A callback that panics keeps no portion from being freed.
            match catch_unwind(AssertUnwindSafe(|| self.free_some())) {
                Ok(false) => break,
                Ok(true) => {}
                Err(payload) => match panic {
                    None => panic = Some(payload),
                    Some(_) => discard(payload),
                },
            }
            if now_ns() - begun_ns >= ns {
                break;
            }
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Frees what may be freed now, whether its batch is due or not. Called when a handle is dropped: what waits may own all
    /// handles that are left, and then nobody would come by again. Whether somebody must come by later: a fence is awaited, or
    /// a panic unwinds.
    pub(crate) fn free_before_nobody_comes(&self) -> bool {
        if self.garbage.objects() == 0 || self.puts_aside() {
            return false;
        }
        if std::thread::panicking() {
            return true;
        }
        // Without objects in bags a token, and its membarrier, would be for nothing.
        if self.bagged.load(Ordering::SeqCst) > 0 {
            self.close_all();
        }
        // Before the frees: a fence that is complete only after them leaves something to be freed.
        let awaited = self.core.awaits_fence();
        self.free_due();
        awaited || self.core.awaits_fence()
    }

    /// Frees what waits for awaited fences, and what is retired by that, asleep until they are complete.
    pub(crate) fn free_after_fences(&self) {
        while self.free_before_nobody_comes() {
            // Where membarrier is refused nothing will be freed.
            if self.core.wait_for_fence(self.core.clock.now(), None).is_err() {
                return;
            }
        }
    }

    /// Frees what has passed. Whether there was any.
    fn free_some(&self) -> bool {
        let Some((due, under_way, longest_ns)) = self.take_due() else { return false };
        let bytes = due.iter().map(Retired::bytes).sum();
        let count = Freed::by_its_end(&self.garbage, due.len(), bytes);
        // SAFETY: `take_due` hands out objects whose token has passed and that no slot pins.
        self.freeing(|| unsafe { free_all(due) });
        drop(count);
        drop(under_way);
        // A subscriber may use the domain, and may panic: nothing is in hand.
        trace::grace_period(&self.core, longest_ns);
        true
    }

    /// Frees everything, as the domain ends. No handle is left, hence no borrow of one: all sections and slots that are
    /// still open belong to guards that were leaked, and no reference that these lent out is left either.
    pub(crate) fn shut_down(&self) {
        let mut objects = self.empty_bags();
        let mut queue = self.queue.lock();
        objects.append(&mut queue.held);
        queue.batches.drain(..).for_each(|mut batch| objects.append(&mut batch.objects));
        drop(queue);
        // SAFETY: see above. Their threads' last use of a handle, or of a reference, precedes the drop of that handle,
        // which precedes this one's (`Arc`).
        let free = || self.freeing(|| unsafe { free_all(objects) });
        if !std::thread::panicking() {
            return free();
        }
        // A second panic would end the process.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(free)) {
            discard(payload);
        }
    }

    /// Takes the objects that may be freed out of the queue, and counts the caller as freeing. None when
    /// there are none.
    fn take_due(&self) -> Option<(Vec<Retired>, UnderWay<'_>, u64)> {
        let (mut longest_ns, now_ns) = (0, now_ns());
        let mut queue = self.queue.lock();
        let (mut held, mut due) = (std::mem::take(&mut queue.held), Vec::new());
        let mut looked_at_held = false;
        // Those that slots pin are no portion: what comes after them may be free.
        while due.is_empty() {
            let mut passed = Vec::new();
            while passed.len() < PORTION && queue.batches.front().is_some_and(|b| self.core.check(b.token)) {
                let Some(mut batch) = queue.batches.pop_front() else { break };
                // From its end, which costs no more the larger it is.
                let kept = batch.objects.len().saturating_sub(PORTION);
                if kept == 0 && !batch.objects.is_empty() {
                    let ns = now_ns.saturating_sub(batch.closed_ns);
                    self.core.durations.record(ns);
                    longest_ns = longest_ns.max(ns);
                }
                passed.append(&mut batch.objects.split_off(kept));
                if kept > 0 {
                    queue.batches.push_front(batch);
                }
            }
            if passed.is_empty() && looked_at_held {
                break;
            }
            // Slots are read after the tokens have passed.
            let slots = self.core.pinned();
            if !looked_at_held {
                passed.append(&mut held);
                looked_at_held = true;
            }
            let (pinned, free): (Vec<_>, Vec<_>) = passed.into_iter().partition(|r| r.is_held(&slots));
            held.extend(pinned);
            due = free;
        }
        queue.held = held;
        if due.is_empty() {
            return None;
        }
        self.queued.fetch_sub(due.len(), Ordering::Relaxed);
        let under_way = UnderWay::begin(self, &mut queue);
        drop(queue);
        Some((due, under_way, longest_ns))
    }

    /// Wakes the reclaimer thread if it sleeps for want of work, or in any case.
    pub(crate) fn wake_reclaimer(&self, in_any_case: bool) {
        if in_any_case || (self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst)) {
            announce(&self.work);
        }
    }

    /// When the oldest bag that holds something was opened.
    pub(crate) fn oldest_bag(&self) -> Option<u64> {
        let opened = |s: &Shard| {
            let bag = s.0.lock();
            (!bag.objects.is_empty()).then_some(bag.opened_ns)
        };
        self.bags.iter().filter_map(opened).min()
    }

    /// Whether a bag is full.
    pub(crate) fn has_full_bag(&self) -> bool {
        self.bags.iter().any(|s| {
            let bag = s.0.lock();
            bag.objects.len() >= self.batch || bag.bytes >= self.garbage.batch_bytes()
        })
    }

    /// In the child of a fork: threads that freed are not here.
    pub(crate) fn reset_after_fork(&self) {
        let mut queue = self.queue.lock();
        queue.running = [0; 2];
        let queued = sizes(queue.batches.iter().flat_map(|b| &b.objects).chain(&queue.held));
        drop(queue);
        let bagged = self.bags.iter().map(|s| sizes(&s.0.lock().objects));
        let bagged = bagged.fold((0, 0), |(objects, bytes), one| (objects + one.0, bytes + one.1));
        self.queued.store(queued.0, Ordering::Relaxed);
        self.bagged.store(bagged.0, Ordering::Relaxed);
        self.garbage.recount(queued.0 + bagged.0, queued.1 + bagged.1);
        self.reclaimer.store(false, Ordering::Relaxed);
    }
}

/// How many objects these are, and of how many bytes.
fn sizes<'a>(objects: impl IntoIterator<Item = &'a Retired>) -> (usize, usize) {
    objects.into_iter().fold((0, 0), |(objects, bytes), one| (objects + 1, bytes + one.bytes()))
}
