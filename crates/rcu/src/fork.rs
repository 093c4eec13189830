//! What happens to domains at a fork: the child has one thread, and memory as all of the parent's threads left it.
//!
//! Before the fork, the forking thread takes all locks of this crate, so that no list is half changed. Both processes
//! then release them. The child frees the records of threads that it does not have, resets the counts of what those
//! threads were doing, and gives the forking thread's records its new id. A section that another thread was in goes
//! on for ever, because the forking thread may hold references that this section lent out.
//!
//! Objects that another thread had in hand, on their way to the queue or being freed, are lost to the child: it neither
//! frees them nor counts them as garbage. glibc keeps rseq registered over a fork; membarrier must be registered again.
//!
//! The child has no reclaimer thread. There, writers free by themselves.

use crate::core::Core;
use crate::fence;
use crate::futex::{Lock, announce};
use crate::later;
use crate::platform::{self, membarrier, thread_id};
use crate::reader_record::Record;
use crate::reclaim::Reclaim;
use crate::sync::atomic::{AtomicI32, Ordering};
use std::sync::Once;

/// A domain that is alive. It is removed from the list before it is freed.
struct Known {
    core: *const Core,
    reclaim: *const Reclaim,
}

// SAFETY: the pointers are only used under the list's lock, while the domain is in the list and therefore alive.
// Threads share what they point to anyway.
unsafe impl Send for Known {}

static DOMAINS: Lock<Vec<Known>> = Lock::new(Vec::new());
/// Thread id of the forking thread in the parent. Written under the list's lock, because several threads may fork at
/// a time.
static FORKING: AtomicI32 = AtomicI32::new(0);

/// Installs the handlers, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| platform::at_fork(before, in_parent, in_child));
}

pub(crate) fn remember(core: &Core, reclaim: &Reclaim) {
    DOMAINS.lock().push(Known { core, reclaim });
}

pub(crate) fn forget(core: &Core) {
    DOMAINS.lock().retain(|k| !std::ptr::eq(k.core, core));
}

/// Calls `f` for every domain.
///
/// # Safety
/// The caller holds the lock of `DOMAINS`.
unsafe fn each(f: impl Fn(&Core, &Reclaim)) {
    // SAFETY: the caller holds the lock, so the list is constant, and what it lists is alive.
    unsafe { DOMAINS.peek().iter().for_each(|k| f(&*k.core, &*k.reclaim)) }
}

extern "C" fn before() {
    DOMAINS.acquire();
    FORKING.store(thread_id(), Ordering::Relaxed);
    // SAFETY: the lock was taken above. Lock order: this crate never holds two of these at a time, with one
    // exception: the queue's lock may be taken under a bag's, in the order used here. Under the queue's lock the
    // lists of readers are only read.
    unsafe {
        each(|core, reclaim| {
            reclaim.acquire_locks();
            core.readers.free.acquire();
            core.hazards.free.acquire();
            core.hook.acquire();
        });
    }
    later::acquire();
}

extern "C" fn in_parent() {
    // SAFETY: `before` took all these locks on this thread.
    unsafe {
        later::release(false);
        each(|core, reclaim| unlock(core, reclaim));
        DOMAINS.release();
    }
}

/// # Safety
/// The caller holds the locks that `before` takes.
unsafe fn unlock(core: &Core, reclaim: &Reclaim) {
    // SAFETY: the caller holds them, without guards.
    unsafe {
        core.hook.release();
        core.hazards.free.release();
        core.readers.free.release();
        reclaim.release_locks();
    }
}

extern "C" fn in_child() {
    fence::reset_after_fork();
    membarrier::register_again();
    let (was, is) = (FORKING.load(Ordering::Relaxed), thread_id());
    // SAFETY: `before` took all these locks on this thread, which is the child's only one.
    unsafe {
        later::release(true);
        each(|core, reclaim| {
            unlock(core, reclaim);
            core.awaited.reset_after_fork();
            // The child's only thread has seen its own unlinks, and there is no other thread that could miss them.
            core.acks.fence_done(core.clock.now());
            core.modes.reset_after_fork(&core.clock.mode);
            reclaim.reset_after_fork(was, is);
            keep_only(core, was, is);
        });
        DOMAINS.release();
    }
}

/// Ends the sections of a domain whose threads are in the parent of this process, or have ended after leaking them.
///
/// # Safety
/// Nobody uses a reference that one of these sections lent out.
pub(crate) unsafe fn end_sections_without_thread(core: &Core) {
    for entry in core.readers.entries() {
        // SAFETY: `core` owns the pool, and is borrowed here.
        let record: &Record = unsafe { entry.get() };
        if record.owner().1 {
            record.clear();
            core.readers.give(entry);
        }
    }
    // A writer that waits for such a section sleeps until a reader leaves.
    announce(&core.event);
}

/// Keeps the records of the forking thread and of open sections, and frees the others.
fn keep_only(core: &Core, was: i32, is: i32) {
    for entry in core.readers.entries() {
        // SAFETY: `core` owns the pool and is alive.
        let record: &Record = unsafe { entry.get() };
        // SAFETY: if another thread held the name's lock, it is in the parent.
        unsafe { record.name.reset_after_fork(String::new()) };
        if record.is_free_after_fork(was, is) {
            core.readers.give(entry);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Domain, Options};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_domain_whose_end_panics_is_not_visited_by_a_fork() {
        let domain = Domain::new(Options::new().batch(64));
        // Kept, so that no other domain gets its address.
        let core = domain.core().clone();
        let is_visited = || DOMAINS.lock().iter().any(|k| std::ptr::eq(k.core, &*core));
        // A leaked section, so that the callback waits for the domain's end.
        std::mem::forget(domain.lock());
        domain.defer(|| panic!("expected"));
        assert!(is_visited());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(domain))).is_err());
        assert!(!is_visited());
    }
}
