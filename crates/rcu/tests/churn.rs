//! Threads that come and go leave nothing behind, neither records nor memory. Alone in its process, because it counts
//! allocations.

mod common;

use reprieve_rcu::{Domain, RcuCell};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator, and a count of what is allocated.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many threads are alive at one time.
const TOGETHER: usize = 20;
/// How many threads there are in all. REPRIEVE_CHURN_THREADS sets another number, for systems where creating threads
/// takes long.
const THREADS: usize = 100_000;

/// Threads that read by all kinds of section and then end.
fn churn(domain: &Domain, cell: &RcuCell<u64>, threads: usize) {
    for _ in 0..threads / TOGETHER {
        let all_registered = &Barrier::new(TOGETHER);
        let life = move || {
            let reader = domain.register("churn").unwrap();
            let slot = reader.slot().unwrap();
            let guard = domain.lock();
            assert_eq!(*cell.load(&guard), cell.get());
            all_registered.wait();
            drop((slot, guard));
        };
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..TOGETHER).map(|_| s.spawn(life)).collect();
            // The end of the scope waits for the closures. This waits for the threads, which end later.
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
        // Per thread alive at one time: its own record, and a registered one. Checked in each round, because
        // otherwise too many would be refused only in the end.
        // the end be refused.
        assert_eq!(domain.stats().records, 2 * TOGETHER);
    }
}

#[test]
fn many_threads_leave_nothing_behind() {
    let domain = common::domain();
    let cell = RcuCell::in_domain(&domain, 7);
    // This makes what is made only once, and kept for later threads.
    churn(&domain, &cell, 5 * TOGETHER);
    let before = LIVE.load(Ordering::SeqCst);
    let asked = std::env::var("REPRIEVE_CHURN_THREADS").ok().and_then(|threads| threads.parse().ok());
    churn(&domain, &cell, asked.unwrap_or(THREADS));
    assert_eq!(LIVE.load(Ordering::SeqCst), before, "allocations");
    domain.synchronize();
}
