//! A limit that every call of membarrier exceeds, so that the fence thread makes all calls. Nothing is lost by that.

#![cfg(target_os = "linux")]

use reprieve_rcu::{Domain, Fencing, Options, RcuCell, capabilities};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes writers' calls slow, and keeps them slow until the result is dropped.
struct Slow(Arc<AtomicBool>);

impl Slow {
    fn begin() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (domain, stops) = (Domain::new(Options::new().call_limit_ns(1)), stop.clone());
        std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                domain.defer(|| ());
                std::thread::yield_now();
            }
        });
        Self(stop)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Node {
    _next: Option<RcuCell<Node>>,
    _alive: Arc<()>,
}

fn tree(domain: &Domain, depth: usize, alive: &Arc<()>) -> RcuCell<Node> {
    let next = (depth > 1).then(|| tree(domain, depth - 1, alive));
    RcuCell::in_domain(domain, Node { _next: next, _alive: alive.clone() })
}

#[test]
fn what_owns_the_last_handles_of_its_domain_is_freed() {
    let _slow = Slow::begin();
    for depth in 1..6 {
        for _ in 0..50 {
            // With a limit of 0 the thread makes the calls from the first one on.
            let (alive, domain) = (Arc::new(()), Domain::new(Options::new().call_limit_ns(0)));
            let cell = tree(&domain, depth, &alive);
            drop(domain);
            drop(cell);
            until("a tree is lost", || Arc::strong_count(&alive) == 1);
        }
    }
}

#[test]
fn the_child_of_a_fork_has_what_was_asked_for_before() {
    let domain = Domain::new(Options::new().call_limit_ns(1));
    (0..200).for_each(|_| domain.defer(|| ()));
    for _ in 0..20 {
        domain.barrier();
        let token = domain.start();
        domain.defer(|| ());
        // SAFETY: the child has this one thread, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            domain.reclaim_now();
            let fine = domain.check(token) && domain.stats().garbage_objects == 0;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!fine)) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
}

static CELL: OnceLock<RcuCell<u64>> = OnceLock::new();
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: libc::c_int) {
    let value = CELL.get().map_or(0, RcuCell::get);
    HANDLED.fetch_add(usize::from(value > 0), Ordering::SeqCst);
}

/// A thread that has locked the domain before may read in a handler, whatever the handler interrupts, even if the
/// domain's readers have switched to fences since.
#[test]
fn a_signal_handler_reads_a_domain_that_has_left_membarrier() {
    const THREADS: usize = 16;
    if !capabilities().asymmetric {
        return;
    }
    let _slow = Slow::begin();
    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive).call_limit_ns(1));
    CELL.set(RcuCell::in_domain(&domain, 1)).ok().unwrap();
    let cell = CELL.get().unwrap();
    // SAFETY: the handler reads and counts.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let (ready, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (sender, receiver) = std::sync::mpsc::channel();
                let (domain, ready, stop) = (&domain, &ready, &stop);
                s.spawn(move || {
                    drop(domain.lock());
                    // SAFETY: takes nothing.
                    sender.send(unsafe { libc::pthread_self() } as usize).unwrap();
                    ready.fetch_add(1, Ordering::SeqCst);
                    let mut n = 0usize;
                    while !stop.load(Ordering::SeqCst) {
                        n = n.wrapping_mul(25_214_903_917).wrapping_add(11);
                        std::hint::black_box(&Vec::<u8>::with_capacity(2_000 + (n >> 16) % 30_000));
                    }
                });
                receiver.recv().unwrap()
            })
            .collect();
        let reader = domain.register("main").unwrap();
        until("the domain leaves membarrier", || {
            cell.replace(2);
            reader.is_fenced()
        });
        for (n, thread) in threads.into_iter().enumerate() {
            // SAFETY: the thread runs until `stop` is set.
            unsafe { libc::pthread_kill(thread as _, libc::SIGUSR1) };
            until("a handler hangs", || HANDLED.load(Ordering::SeqCst) > n);
        }
        stop.store(true, Ordering::SeqCst);
    });
}
