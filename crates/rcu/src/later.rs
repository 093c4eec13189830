//! A thread that runs jobs for which a caller must not wait, one at a time. Started with the first.
//!
//! A job of a parent process may be lost to the child of a fork, or done in both.

use crate::futex::announce;
use crate::futex::{self, Lock};
use crate::platform::spawn;
use crate::retired::discard;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Job = Box<dyn FnOnce() + Send>;

static JOBS: Lock<Vec<Job>> = Lock::new(Vec::new());
/// Changes with each job; the thread sleeps on it.
static WORK: AtomicU32 = AtomicU32::new(0);
/// Whether this process has started the thread.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Does `job` on the thread. Where the system has no thread to give, with the next job for which it has; perhaps never.
pub(crate) fn run(job: Job) {
    JOBS.lock().push(job);
    if !STARTED.swap(true, Ordering::SeqCst) && spawn("rcu-later", serve).is_err() {
        STARTED.store(false, Ordering::SeqCst);
    }
    announce(&WORK);
}

fn serve() {
    loop {
        let seen = WORK.load(Ordering::SeqCst);
        let jobs = std::mem::take(&mut *JOBS.lock());
        if jobs.is_empty() {
            futex::wait(&WORK, seen, None);
        }
        for job in jobs {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(job)) {
                discard(payload);
            }
        }
    }
}

/// Before a fork: the list is whole in both processes.
pub(crate) fn acquire() {
    JOBS.acquire();
}

/// After a fork, in both processes. In the child, the thread is in the parent.
///
/// # Safety
/// The caller has called `acquire`.
pub(crate) unsafe fn release(in_child: bool) {
    if in_child {
        STARTED.store(false, Ordering::Relaxed);
    }
    // SAFETY: the caller holds the lock, without a guard.
    unsafe { JOBS.release() };
}
