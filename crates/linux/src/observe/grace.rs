//! How long grace periods take, without privileges: `membarrier(MEMBARRIER_CMD_GLOBAL)` waits for one.
//!
//! The call begins anywhere within a grace period and waits for the end of the next, so it takes up to two. It is itself a
//! small load. It fails on a kernel with `nohz_full`, and returns at once on a machine with one CPU. Source: membarrier(2).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::proc::SysCpus;

/// Time between two calls. Not a round number, so that calls do not fall into step with a quota.
const BETWEEN: Duration = Duration::from_millis(137);

/// A thread that times grace periods until it is dropped.
#[derive(Debug)]
pub struct GracePeriods(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// When the open call began, ns; 0 if none is open.
    since_ns: AtomicU64,
    durations_ns: Mutex<Vec<u64>>,
}

impl GracePeriods {
    /// Starts the thread; `None` if this kernel does not tell.
    pub fn begin() -> Option<GracePeriods> {
        if !is_there() {
            return None;
        }
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        // Nobody waits for its end: a call can take as long as the longest grace period.
        std::thread::Builder::new().name("grace".into()).spawn(move || time_them(&theirs)).ok()?;
        Some(GracePeriods(shared))
    }

    /// How long calls took, ns, ascending. A call that is still open counts with the time so far.
    pub fn durations_ns(&self) -> Vec<u64> {
        let mut durations_ns = self.0.durations_ns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match self.0.since_ns.load(Ordering::Relaxed) {
            0 => {}
            since_ns => durations_ns.push(clock::now_ns().saturating_sub(since_ns)),
        }
        durations_ns.sort_unstable();
        durations_ns
    }
}

impl Drop for GracePeriods {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

fn time_them(shared: &Shared) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let since_ns = clock::now_ns();
        shared.since_ns.store(since_ns, Ordering::Relaxed);
        let is_done = membarrier(libc::MEMBARRIER_CMD_GLOBAL) == 0;
        let took_ns = clock::now_ns() - since_ns;
        shared.since_ns.store(0, Ordering::Relaxed);
        if !is_done {
            return;
        }
        shared.durations_ns.lock().unwrap_or_else(PoisonError::into_inner).push(took_ns);
        std::thread::sleep(BETWEEN);
    }
}

/// Whether the call waits for grace periods here.
fn is_there() -> bool {
    let supported = membarrier(libc::MEMBARRIER_CMD_QUERY);
    let several = SysCpus::default().online().iter().count() > 1;
    several && supported > 0 && supported & i64::from(libc::MEMBARRIER_CMD_GLOBAL) != 0
}

fn membarrier(command: libc::c_int) -> i64 {
    // SAFETY: the call takes three numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}
