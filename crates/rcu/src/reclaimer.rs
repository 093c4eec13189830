//! The optional thread that closes bags, waits for grace periods and frees, so that writers do neither.
//!
//! It sleeps until there is garbage, then until a bag is full or as old as the domain's deadline, then for
//! the grace period. After a round it looks again once a deadline for some time before it asks to be woken: a
//! steady writer then never pays for a wake-up.

use crate::clock::now_ns;
use crate::domain::Domain;
use crate::futex;
use crate::reclaim::Reclaim;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// How many deadlines the thread looks by itself before it asks to be woken. More than one: a writer whose rate is
/// about one object a deadline is sometimes late, and would then pay for a wake-up each time.
const LOOKS: u32 = 8;

/// Handle of a domain's reclaimer thread. The thread ends, with everything freed that can be, when this is
/// dropped.
#[must_use = "the thread ends when the handle is dropped"]
pub struct Reclaimer {
    domain: Domain,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    /// Starts the thread; an error when the domain has one, or when the system has no thread to give.
    pub(crate) fn spawn(domain: &Domain) -> std::io::Result<Self> {
        if domain.reclaim().reclaimer.swap(true, Ordering::SeqCst) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                "the domain has a reclaimer thread",
            ));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (for_thread, seen) = (domain.clone(), stop.clone());
        let builder = std::thread::Builder::new().name("rcu-reclaimer".to_owned());
        match builder.spawn(move || run(for_thread.reclaim(), &seen)) {
            Ok(thread) => Ok(Self { domain: domain.clone(), stop, thread: Some(thread) }),
            Err(e) => {
                domain.reclaim().reclaimer.store(false, Ordering::SeqCst);
                Err(e)
            }
        }
    }
}

impl Reclaimer {
    /// CPU time that the thread has used so far, in nanoseconds. 0 where the system does not tell.
    pub fn cpu_ns(&self) -> u64 {
        let Some(thread) = &self.thread else { return 0 };
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: the thread is not joined before this handle is dropped; both places are valid for the calls.
        let failed = unsafe {
            libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) != 0
                || libc::clock_gettime(clock, &raw mut time) != 0
        };
        if failed { 0 } else { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        let reclaim = self.domain.reclaim();
        self.stop.store(true, Ordering::SeqCst);
        reclaim.wake_reclaimer(true);
        if let Some(thread) = self.thread.take() {
            // Its callbacks' panics are caught: there is nothing to pass on.
            let _ = thread.join();
        }
        reclaim.reclaimer.store(false, Ordering::SeqCst);
        reclaim.free_due();
    }
}

fn run(reclaim: &Reclaim, stop: &AtomicBool) {
    let mut looks = 0;
    while !stop.load(Ordering::SeqCst) {
        let seen = reclaim.work.load(Ordering::SeqCst);
        match reclaim.oldest_bag() {
            None if looks > 0 => {
                looks -= 1;
                futex::wait(&reclaim.work, seen, Some(reclaim.deadline_ns));
            }
            None => idle(reclaim, seen, stop),
            Some(opened_ns) => {
                let age_ns = now_ns().saturating_sub(opened_ns);
                if age_ns < reclaim.deadline_ns && !reclaim.has_full_bag() {
                    futex::wait(&reclaim.work, seen, Some(reclaim.deadline_ns - age_ns));
                    continue;
                }
                looks = LOOKS;
                let token = reclaim.close_all();
                reclaim.core.wait(token, None);
                // A callback's panic has been reported by the panic hook; the thread serves the others.
                let _ = catch_unwind(AssertUnwindSafe(|| reclaim.free_due()));
            }
        }
    }
}

/// Sleeps until a writer has put something into a bag.
fn idle(reclaim: &Reclaim, seen: u32, stop: &AtomicBool) {
    reclaim.asleep.store(true, Ordering::SeqCst);
    // Against a writer that puts an object and then looks whether the thread sleeps: one of the two sees the
    // other.
    if reclaim.bagged.load(Ordering::SeqCst) == 0 && !stop.load(Ordering::SeqCst) {
        futex::wait(&reclaim.work, seen, None);
    }
    reclaim.asleep.store(false, Ordering::SeqCst);
}
