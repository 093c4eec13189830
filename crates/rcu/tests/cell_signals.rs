//! Signal handlers that use a cell, whatever they interrupt. One test, because a handler concerns the whole process.

#[path = "common/canary.rs"]
mod canary;

use canary::Canary;
use reprieve_rcu::RcuCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static CELL: RcuCell<Option<Arc<Canary>>> = RcuCell::none();
static READS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: i32) {
    // Twice, so that the inner use falls back to a section. Nothing here allocates or frees.
    CELL.with(|outer| {
        CELL.with(|inner| {
            for value in [outer, inner] {
                value.as_ref().map(|v| v.check());
            }
        });
    });
    READS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_handler_pins_while_its_thread_pins() {
    let (drops, stop) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let replaced = AtomicUsize::new(0);
    let new = |number| Some(Arc::new(Canary::new(number, &drops)));
    CELL.replace(new(0));
    // Makes the thread's record and slot before there is a handler.
    CELL.with(|_| CELL.with(|_| ()));
    // SAFETY: the handler reads, and has no data of its own.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t) };
    // SAFETY: takes and touches nothing.
    let reader = unsafe { libc::pthread_self() } as usize;
    std::thread::scope(|s| {
        s.spawn(|| {
            let end = Instant::now() + Duration::from_secs(50);
            while READS.load(Ordering::Relaxed) < 3_000 && Instant::now() < end {
                CELL.replace(new(replaced.fetch_add(1, Ordering::SeqCst) as u64));
            }
            stop.store(true, Ordering::SeqCst);
        });
        s.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                // SAFETY: the thread lives until the scope ends.
                unsafe { libc::pthread_kill(reader as _, libc::SIGUSR1) };
                (0..500).for_each(|_| std::hint::spin_loop());
            }
        });
        while !stop.load(Ordering::SeqCst) {
            CELL.with(|value| {
                (0..50).for_each(|_| {
                    value.as_ref().map(|v| v.check());
                });
            });
        }
    });
    assert!(READS.load(Ordering::Relaxed) >= 3_000, "signals arrive");
    CELL.replace(None);
    reprieve_rcu::Domain::global().barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 1 + replaced.load(Ordering::SeqCst));
}
