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
const BETWEEN_NS: u64 = 137_000_000;
/// Durations that wait to be taken: two minutes of them.
const MOST: usize = 1024;

/// A thread that times grace periods until it is dropped.
#[derive(Debug)]
pub(super) struct GracePeriods(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// When the open call began, ns; 0 if none is open.
    since_ns: AtomicU64,
    /// Calls that ended, and were not taken yet.
    durations_ns: Mutex<Vec<u64>>,
    between_ns: AtomicU64,
}

impl GracePeriods {
    /// Starts the thread; `None` if this kernel does not tell.
    pub fn begin() -> Option<GracePeriods> {
        if refusal().is_some() {
            return None;
        }
        let shared =
            Arc::new(Shared { durations_ns: Mutex::new(Vec::with_capacity(MOST)), ..Shared::default() });
        shared.between_ns.store(BETWEEN_NS, Ordering::Relaxed);
        let theirs = shared.clone();
        // Nobody waits for its end: a call can take as long as the longest grace period.
        std::thread::Builder::new().name("grace".into()).spawn(move || time_them(&theirs)).ok()?;
        Some(GracePeriods(shared))
    }

    /// Calls more or less often: at each time, or only at every eighth.
    pub fn set_frugal(&self, is_frugal: bool) {
        self.0.between_ns.store(if is_frugal { 8 * BETWEEN_NS } else { BETWEEN_NS }, Ordering::Relaxed);
    }

    /// Takes how long calls took that ended since the last time, ns.
    pub fn take(&self, into: &mut Vec<u64>) {
        into.append(&mut self.0.durations_ns.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// How long the open call has taken so far, ns; 0 if none is open.
    pub fn open_ns(&self) -> u64 {
        match self.0.since_ns.load(Ordering::Relaxed) {
            0 => 0,
            since_ns => clock::now_ns().saturating_sub(since_ns),
        }
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
        let mut durations_ns = shared.durations_ns.lock().unwrap_or_else(PoisonError::into_inner);
        if durations_ns.len() < MOST {
            durations_ns.push(took_ns);
        }
        drop(durations_ns);
        std::thread::sleep(Duration::from_nanos(shared.between_ns.load(Ordering::Relaxed)));
    }
}

/// Why the call does not wait for grace periods here, and what would change that; `None` if it does.
pub(super) fn refusal() -> Option<&'static str> {
    let supported = membarrier(libc::MEMBARRIER_CMD_QUERY);
    if SysCpus::default().online().iter().count() < 2 {
        return Some("membarrier() does not wait with one CPU; give the VM a second vCPU");
    }
    let is_there = supported > 0 && supported & i64::from(libc::MEMBARRIER_CMD_GLOBAL) != 0;
    (!is_there).then_some("the kernel refuses membarrier(); boot without nohz_full=, with CONFIG_MEMBARRIER")
}

fn membarrier(command: libc::c_int) -> i64 {
    // SAFETY: the call takes three numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}
