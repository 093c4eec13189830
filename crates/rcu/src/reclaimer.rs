//! The handle of a domain's reclaimer thread.

use crate::domain::Domain;
use crate::platform;
use crate::reclaim::thread;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The handle of a domain's reclaimer thread. When it is dropped, the thread frees what it can and ends.
#[must_use = "the thread ends when the handle is dropped"]
pub struct Reclaimer {
    domain: Domain,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// How many forks the domain had seen when the thread started.
    forks: u64,
}

impl Domain {
    /// Starts a thread that does the waiting and freeing for all writers of this domain.
    ///
    /// # Errors
    /// When the domain has one, or when the system has no thread to give.
    pub fn spawn_reclaimer(&self) -> std::io::Result<Reclaimer> {
        let reclaim = self.reclaim();
        if !reclaim.claim_thread() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                "the domain has a reclaimer thread",
            ));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (for_thread, seen) = (self.clone(), stop.clone());
        let builder = std::thread::Builder::new().name("rcu-reclaimer".to_owned());
        let thread = builder
            .spawn(move || thread::run(for_thread.reclaim(), &seen))
            .inspect_err(|_| reclaim.release_thread())?;
        let forks = reclaim.garbage().forks();
        Ok(Reclaimer { domain: self.clone(), stop, thread: Some(thread), forks })
    }
}

impl Reclaimer {
    /// CPU time that the thread has used so far, in nanoseconds; 0 if the system does not report it.
    pub fn cpu_ns(&self) -> u64 {
        self.thread.as_ref().map_or(0, platform::cpu_ns_of)
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        let reclaim = self.domain.reclaim();
        let Some(thread) = self.thread.take() else { return };
        if self.forks != reclaim.garbage().forks() {
            // This is the child of a fork, and the thread is in the parent. The domain may have another thread here.
            std::mem::forget(thread);
            return;
        }
        self.stop.store(true, Ordering::SeqCst);
        reclaim.announce_stop();
        // If a callback owns this handle, the thread itself drops it, and ends after that.
        if thread.thread().id() != std::thread::current().id() {
            // The thread catches its callbacks' panics, so there is nothing to pass on.
            let _ = thread.join();
        }
        reclaim.release_thread();
        reclaim.free_due();
    }
}
