//! A background thread for jobs that a caller must not wait for. It starts with the first job and runs one job at a time.
//!
//! At a fork, a job of the parent may be lost to the child, or be done in both processes.

use crate::futex::announce;
use crate::futex::{self, Lock};
use crate::platform::spawn;
use crate::retired::discard;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Job = Box<dyn FnOnce() + Send>;

static JOBS: Lock<Vec<Job>> = Lock::new(Vec::new());
/// Changes with each job. The thread sleeps on it.
static WORK: AtomicU32 = AtomicU32::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);

/// Runs `job` on the thread. If the system cannot start a thread now, the job waits until a later job starts one,
/// which may never happen.
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

/// Before a fork, so that the list is whole in both processes.
pub(crate) fn acquire() {
    JOBS.acquire();
}

/// After a fork, in both processes. The thread itself exists in the parent alone.
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
