//! The way of an object from retired to freed.
//!
//! An object goes into a bag. A bag that is full, large or old is closed: it gets a token and joins the queue of batches.
//! Once a batch's token has passed, the next call that comes by frees it: a call that retires, `barrier`, or the reclaimer
//! thread. With batches of one, the call that retires does all of this at once and touches neither bag nor queue.
//!
//! Invariants:
//! - Frees and callbacks run outside of locks, so that they may retire objects themselves. What they retire is only
//!   put into a bag. The call that runs them goes on until nothing is due, so that a long chain needs no deep stack.
//! - If a callback panics, the others still run, and its own room is given back.
//! - A callback may own the last handle of its own domain: dropping any other handle first frees what waits.
//! - An object is freed after its token has passed AND no slot, read after that, pins it.

mod bags;
mod barrier;
mod free;
mod queue;
mod room;
pub(crate) mod thread;

pub(crate) use room::Room;

use crate::core::Core;
use crate::freeing::{freeing, puts_aside};
use crate::futex::Lock;
use crate::garbage::{Freed, Garbage};
use crate::options::{AtLimit, Options};
use crate::platform::now_ns;
use crate::retired::Retired;
use crate::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use bags::Bags;
use queue::{Batch, Queue, UnderWay};
use std::sync::Arc;

/// How many objects are freed between two looks at the clock.
const PORTION: usize = 64;

/// The garbage of a domain and its way out.
pub(crate) struct Reclaim {
    core: Arc<Core>,
    garbage: Garbage,
    bags: Bags,
    queue: Lock<Queue>,
    /// Objects in the queue. Read before its lock is taken.
    queued: AtomicUsize,
    /// Changes when a barrier waits for frees and they have ended.
    freed: AtomicU32,
    /// Lets one barrier run at a time, because there are only two phases. Holds the id of the barrier's thread, or 0.
    barrier: Lock<AtomicI32>,
    /// Whether a reclaimer thread does the waiting and freeing.
    has_thread: AtomicBool,
    /// The reclaimer thread sleeps on this, and asks to be woken while it is `asleep`.
    work: AtomicU32,
    asleep: AtomicBool,
    at_limit: AtLimit,
    batch: usize,
    deadline_ns: u64,
}

impl Reclaim {
    pub(crate) fn new(core: Arc<Core>, options: &Options) -> Self {
        let garbage = Garbage::new(options.limit_objects, options.limit_bytes);
        Self {
            core,
            bags: Bags::new(options.batch, garbage.batch_bytes(), options.deadline_ns),
            garbage,
            queue: Lock::default(),
            queued: AtomicUsize::new(0),
            freed: AtomicU32::new(0),
            barrier: Lock::new(AtomicI32::new(0)),
            has_thread: AtomicBool::new(false),
            work: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            at_limit: options.at_limit,
            batch: options.batch,
            deadline_ns: options.deadline_ns,
        }
    }

    pub(crate) fn garbage(&self) -> &Garbage {
        &self.garbage
    }

    /// Accepts an object for which there is room.
    pub(crate) fn accept(&self, retired: Retired) {
        if self.has_thread.load(Ordering::Relaxed) {
            let full = self.bags.put_for_reclaimer(retired, &self.asleep);
            self.wake_thread(full);
        } else if self.batch == 1 && !self.puts_aside() {
            self.accept_promptly(retired);
        } else {
            if let Some((objects, _under_way)) =
                self.bags.put(retired, || self.puts_aside(), || self.under_way())
            {
                self.close(objects);
            }
            self.free_some_due();
        }
    }

    /// Handles a batch of one: token, fence and free at once, if the readers permit. Statistics come after the free.
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
                // SAFETY: the token was taken after the object was unlinked and has passed; no slot pins the object.
                freeing(self, || unsafe { retired.free() });
                drop(count);
                self.core.note_duration(passed_ns - fence.from_ns);
            }
            _ => self.enqueue(Batch { token, closed_ns: fence.from_ns, objects: vec![retired] }),
        }
        self.free_some_due();
    }

    /// Gives `objects` a token and queues them.
    fn close(&self, objects: Vec<Retired>) -> u64 {
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

    /// Queues an object whose fence is not complete, together with others. While a CPU is away there may be very many of
    /// them. Growing a long queue may remap memory, and then the TLB shootdown would wait for the CPU that is away.
    fn enqueue_awaited(&self, token: u64, retired: Retired) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        // First, so that batches whose fence is complete by now do not wait for a later one.
        self.core.note_served();
        let mut queue = self.queue.lock();
        if let Some(last) = queue.open_batch()
            && last.objects.len() < PORTION
            && !self.core.is_fenced(last.token)
        {
            last.objects.push(retired);
            // Waiting for the later token includes waiting for the earlier one.
            last.token = last.token.max(token);
            return;
        }
        let mut objects = Vec::with_capacity(PORTION);
        objects.push(retired);
        queue.add(Batch { token, closed_ns: now_ns(), objects }, true);
    }

    /// Closes all bags into one batch. Returns its token, which is the newest.
    pub(crate) fn close_all(&self) -> u64 {
        let _under_way = self.under_way();
        let objects = self.bags.empty();
        self.close(objects)
    }

    fn puts_aside(&self) -> bool {
        puts_aside(self)
    }

    /// Counts the caller among the threads that have objects in hand.
    fn under_way(&self) -> UnderWay<'_> {
        UnderWay::begin(&self.queue, &mut self.queue.lock(), &self.garbage, &self.freed)
    }

    /// Since when the oldest waiting object has been waiting.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        let queued = self.queue.lock().batches.front().map(|b| b.closed_ns);
        [queued, self.bags.oldest_ns()].into_iter().flatten().min()
    }

    /// Takes all locks but the barrier's, before a fork.
    pub(crate) fn acquire_locks(&self) {
        self.bags.acquire();
        self.queue.acquire();
    }

    /// # Safety
    /// The caller has called `acquire_locks`.
    pub(crate) unsafe fn release_locks(&self) {
        // SAFETY: the caller holds the locks, without guards.
        unsafe {
            self.queue.release();
            self.bags.release();
        }
    }

    /// For the child of a fork, which does not have the threads that were freeing. `was` and `is` are the ids of the
    /// forking thread in the parent and in the child.
    ///
    /// # Safety
    /// No other thread runs yet.
    pub(crate) unsafe fn reset_after_fork(&self, was: i32, is: i32) {
        // SAFETY: this is the only thread. If another thread held the barrier's lock, it is in the parent.
        unsafe {
            let barrier = self.barrier.peek();
            // A barrier that the forking thread is in goes on in the child.
            if barrier.compare_exchange(was, is, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                self.barrier.reset_after_fork(AtomicI32::new(0));
            }
        }
        let mut queue = self.queue.lock();
        queue.forget_threads();
        let objects = queue.batches.iter().flat_map(|b| &b.objects).chain(&queue.held);
        let queued = objects.fold((0, 0), |(objects, bytes), one| (objects + 1, bytes + one.bytes()));
        drop(queue);
        let bagged = self.bags.recount();
        self.queued.store(queued.0, Ordering::Relaxed);
        self.garbage.recount(queued.0 + bagged.0, queued.1 + bagged.1);
        self.has_thread.store(false, Ordering::Relaxed);
    }
}
