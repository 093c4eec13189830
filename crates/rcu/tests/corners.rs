//! Where several rules meet: limits, panics, forks, callbacks of several domains, bursts. Each of these was once a
//! hang, a wrong count, or a call that took too long.

mod common;

use reprieve_rcu::{AtLimit, Domain, Fencing, Options};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Waits for threads that may hang.
fn all_end(threads: &[JoinHandle<()>], what: &str) {
    let begun = Instant::now();
    while !threads.iter().all(JoinHandle::is_finished) {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_call_that_retires_while_its_thread_unwinds_ends_at_the_limit() {
    struct Retires(Domain);
    impl Drop for Retires {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            self.0.defer(|| ());
        }
    }
    let domain = Domain::new(common::options().limit_objects(1).at_limit(AtLimit::Reclaim));
    let guard = domain.lock();
    domain.defer(|| ());
    drop(guard);
    let retires = Retires(domain.clone());
    let thread = std::thread::spawn(move || {
        let _retires = retires;
        panic!("for the test");
    });
    all_end(&[thread], "it waits for room that nobody makes while a panic unwinds");
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0);
}

/// Both domains are at their limits, and each frees what the other waits for.
#[test]
fn callbacks_that_retire_in_each_other_s_domain_do_not_wait_for_each_other() {
    let options = || common::options().limit_objects(1).at_limit(AtLimit::Reclaim);
    let (a, b, meet) = (Domain::new(options()), Domain::new(options()), Arc::new(Barrier::new(2)));
    let retire = |in_one: &Domain, then_in: &Domain| {
        let (in_one, then_in, meet) = (in_one.clone(), then_in.clone(), meet.clone());
        std::thread::spawn(move || {
            in_one.defer(move || {
                meet.wait();
                then_in.defer(|| ());
            });
        })
    };
    all_end(&[retire(&a, &b), retire(&b, &a)], "each waits for what the other has in hand");
    a.barrier();
    b.barrier();
    assert_eq!((a.stats().garbage_objects, b.stats().garbage_objects), (0, 0));
}

#[test]
fn who_waits_for_a_leaked_section_is_woken_when_that_is_ended() {
    for barrier in [false, true] {
        let domain = common::domain();
        let leaks = domain.clone();
        std::thread::spawn(move || std::mem::forget(leaks.lock())).join().unwrap();
        let (begin, begun) = mpsc::channel();
        let waiting = domain.clone();
        let thread = std::thread::spawn(move || {
            begin.send(()).unwrap();
            if barrier { waiting.barrier() } else { waiting.synchronize() }
        });
        begun.recv().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!thread.is_finished());
        // SAFETY: the guard was leaked, and lent out no reference.
        unsafe { domain.end_sections_of_the_parent() };
        all_end(&[thread], "it sleeps on");
    }
}

/// The child does not count what other threads had in hand at the fork, because nobody there would free it.
#[test]
#[cfg(all(unix, not(reprieve_fallback)))]
fn the_child_of_a_fork_counts_what_it_has() {
    const THREADS: usize = 4;
    let options = common::options().limit_objects(THREADS + 2).at_limit(AtLimit::Reclaim);
    let domain = Domain::new(options);
    let guard = domain.lock();
    domain.defer(|| ());
    let (meet, leave) = (Arc::new(Barrier::new(THREADS + 1)), Arc::new(Barrier::new(THREADS + 1)));
    // Each thread is in a closure of a map, with room reserved in the domain.
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (domain, meet, leave) = (domain.clone(), meet.clone(), leave.clone());
            std::thread::spawn(move || {
                let map = reprieve_rcu::RcuMap::<u32, u32>::new(&domain);
                map.insert(1, 1);
                map.compute(1, |_| {
                    meet.wait();
                    leave.wait();
                    reprieve_rcu::map::Decision::Set(2)
                });
            })
        })
        .collect();
    meet.wait();
    let before = domain.stats().garbage_objects;
    // SAFETY: the child does what the test is about, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(20) };
        let waits = domain.stats().garbage_objects;
        drop(guard);
        (0..100).for_each(|_| domain.defer(|| ()));
        domain.barrier();
        let fine = before > 1 && waits == 1 && domain.stats().garbage_objects == 0;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if fine { 0 } else { 10 + waits as i32 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    drop(guard);
    leave.wait();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(status, 0);
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0);
}

/// With a limit of 1 ns, a call that retires has no time to free what waits. It frees one portion of 64 objects,
/// whatever the size of the batch.
#[test]
fn a_large_batch_is_freed_by_many_calls() {
    const OBJECTS: usize = 10_000;
    let options = Options::new().fencing(Fencing::Fenced).call_limit_ns(1);
    let domain = Domain::new(options.clone().batch(OBJECTS));
    let guard = domain.lock();
    (0..OBJECTS).for_each(|_| domain.defer(|| ()));
    drop(guard);
    domain.defer(|| ());
    let left = domain.stats().garbage_objects;
    assert!((OBJECTS - 200..OBJECTS).contains(&left), "{left}");
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0);

    // Also at the limit.
    let domain = Domain::new(options.batch(OBJECTS).limit_objects(OBJECTS).at_limit(AtLimit::NoWait));
    let guard = domain.lock();
    (0..OBJECTS).for_each(|_| domain.defer(|| ()));
    drop(guard);
    domain.try_defer(|| ()).map_err(drop).unwrap();
    let left = domain.stats().garbage_objects;
    assert!((OBJECTS - 300..OBJECTS).contains(&left), "{left}");
}
