//! fork: the child has one thread, and everything in memory as the parent's threads left it.
//!
//! Before the fork, the forking thread takes all our locks, so that no list is half changed; both processes
//! then release them. In the child, records of threads that are not there are free, counts of
//! what those threads did are reset, and the records of the forking thread get its new id. But a section that such a
//! thread was in goes on for ever: the forking thread may hold references that it lent out. Objects that
//! another thread had in hand (on their way to the queue, or being freed) are lost to the child: neither freed nor
//! counted as garbage of a batch. glibc
//! keeps rseq registered over a fork; membarrier is registered again.
//!
//! The reclaimer thread does not exist in the child: there, writers free by themselves.

use crate::core::Core;
use crate::fence;
use crate::futex::{Lock, announce};
use crate::later;
use crate::platform::{self, membarrier, thread_id};
use crate::reader_record::Record;
use crate::reclaim::Reclaim;
use crate::sync::atomic::{AtomicI32, Ordering};
use std::sync::Once;

/// A domain that is alive. Removed before it is freed.
struct Known {
    core: *const Core,
    reclaim: *const Reclaim,
}

// SAFETY: the pointers are used under the list's lock only, while the domain is in the list and thus alive;
// what they point to is shared between threads anyway.
unsafe impl Send for Known {}

static DOMAINS: Lock<Vec<Known>> = Lock::new(Vec::new());
/// Thread id of the forking thread, in the parent. Written under the list's lock: several threads may fork at a time.
static FORKING: AtomicI32 = AtomicI32::new(0);

/// Installs the handlers, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| platform::at_fork(before, in_parent, in_child));
}

/// Adds a domain.
pub(crate) fn remember(core: &Core, reclaim: &Reclaim) {
    DOMAINS.lock().push(Known { core, reclaim });
}

/// Removes a domain.
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
    // SAFETY: the lock was taken above. Order: no code of ours holds two of these at a time, except the queue's lock,
    // which is also taken under a bag's, in this order, and under which the lists of readers are only read.
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
        each(release);
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

fn release(core: &Core, reclaim: &Reclaim) {
    // SAFETY: called by the handlers only, after `before`.
    unsafe { unlock(core, reclaim) }
}

extern "C" fn in_child() {
    fence::reset_after_fork();
    membarrier::register_again();
    let (was, is) = (FORKING.load(Ordering::Relaxed), thread_id());
    // SAFETY: `before` took all these locks on this thread. The barrier lock's holder, if any, is in the
    // parent, unless it is this thread; and nobody else looks at its value.
    unsafe {
        later::release(true);
        each(|core, reclaim| {
            release(core, reclaim);
            core.awaited.reset_after_fork();
            // The only thread has seen its own unlinks, and no other can miss them.
            core.acks.fence_done(core.clock.now());
            core.modes.reset_after_fork(&core.clock.mode);
            reclaim.reset_after_fork(was, is);
            keep_only(core, was, is);
        });
        DOMAINS.release();
    }
}

/// Ends the sections of a domain whose threads are in the parent of this process, or have leaked them and ended.
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
    // Who waits for such a section sleeps until a reader leaves.
    announce(&core.event);
}

/// Keeps the records of the forking thread and of open sections; the others are free.
fn keep_only(core: &Core, was: i32, is: i32) {
    for entry in core.readers.entries() {
        // SAFETY: `core` owns the pool and is alive.
        let record: &Record = unsafe { entry.get() };
        // SAFETY: a name's lock may have been held by a thread that is in the parent only.
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
