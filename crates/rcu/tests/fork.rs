//! fork, in a process with readers, writers and a reclaimer thread at work. One test, because a fork concerns the
//! whole process.

mod common;

use reprieve_rcu::Domain;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn count_a_free(domain: &Domain, frees: &'static AtomicU64) {
    let count = move || {
        frees.fetch_add(1, Ordering::SeqCst);
    };
    domain.defer(count);
}

/// What the child of a fork must be able to do. Its exit status shows which check failed.
fn in_child(domain: &Domain, frees: &'static AtomicU64) -> i32 {
    // SAFETY: no reference to anything that this domain frees is used here.
    unsafe { domain.end_sections_of_the_parent() };
    let stuck =
        || domain.synchronize_until(std::time::Instant::now() + std::time::Duration::from_secs(5)).is_err();
    if stuck() {
        return 1;
    }
    // SAFETY: nothing is read.
    if unsafe { domain.read(|| 7) } != 7 {
        return 2;
    }
    let before = frees.load(Ordering::SeqCst);
    for _ in 0..200 {
        count_a_free(domain, frees);
    }
    domain.barrier();
    if frees.load(Ordering::SeqCst) < before + 200 {
        return 3;
    }
    let late = |d: &Domain| {
        let _guard = d.lock();
        let token = d.start();
        d.check(token)
    };
    if late(domain) || stuck() {
        return 4;
    }
    0
}

/// Stops the parent's threads, also if a check fails, because the scope would wait for them.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[cfg_attr(reprieve_fallback, ignore = "the portable half does not notice forks")]
fn the_child_is_usable_whatever_the_parents_threads_did() {
    static FREES: AtomicU64 = AtomicU64::new(0);
    let domain = Domain::new(common::options().batch(8));
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let reader = domain.register("always inside").unwrap();
            while !stop.load(Ordering::Relaxed) {
                let _guard = reader.lock();
                std::thread::yield_now();
            }
        });
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                count_a_free(&domain, &FREES);
            }
        });
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(domain.register("comes and goes").unwrap());
                domain.synchronize();
            }
        });
        let stop = Stop(&stop);
        let reclaimed = Domain::new(common::options().batch(64).deadline_ns(10_000));
        let reclaimer = reclaimed.spawn_reclaimer().unwrap();
        for round in 0..100 {
            drop(domain.lock());
            reclaimed.defer(|| ());
            // SAFETY: the child does what the test is about, and leaves by _exit.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                let status = in_child(if round % 2 == 0 { &domain } else { &reclaimed }, &FREES);
                // SAFETY: ends the child without the parent's destructors.
                unsafe { libc::_exit(status) };
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "round {round}");
        }
        drop(stop);
        drop(reclaimer);
    });
    domain.barrier();
}
