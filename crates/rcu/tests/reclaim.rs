//! Retiring, limits, batches, barriers, hazard slots, the reclaimer thread.

mod common;

use common::{Counted, counted, with_reader_inside};
use reprieve_rcu::{AtLimit, Domain, RcuCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

fn drops() -> Arc<AtomicUsize> {
    Arc::default()
}

fn retire(domain: &Domain, drops: &Arc<AtomicUsize>) {
    // SAFETY: a new object that nobody else knows.
    unsafe { domain.retire(counted(drops)) };
}

#[test]
fn prompt_mode_frees_in_the_same_call() {
    let (domain, drops) = (common::domain(), drops());
    for i in 1..=10 {
        retire(&domain, &drops);
        assert_eq!(drops.load(Ordering::SeqCst), i);
    }
    let stats = domain.stats();
    assert_eq!((stats.garbage_objects, stats.freed_objects, stats.peak_objects), (0, 10, 1));
    assert_eq!(stats.grace_periods.count(), 10);
}

#[test]
fn a_reader_defers_and_the_next_call_frees() {
    let (domain, drops) = (common::domain(), drops());
    with_reader_inside(&domain, "reader", || {
        retire(&domain, &drops);
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        assert_eq!(domain.stats().garbage_objects, 1);
        assert!(domain.stats().oldest_ns > 0);
    });
    domain.reclaim_now();
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert_eq!(domain.stats().oldest_ns, 0);
}

#[test]
fn a_batch_is_closed_when_full_or_old() {
    let drops = drops();
    let domain = Domain::new(common::options().batch(4).deadline_ns(u64::MAX));
    for i in 1..=4 {
        retire(&domain, &drops);
        assert_eq!(drops.load(Ordering::SeqCst), i / 4 * 4);
    }
    let domain = Domain::new(common::options().batch(1_000).deadline_ns(0));
    retire(&domain, &drops);
    assert_eq!(drops.load(Ordering::SeqCst), 5);
    let domain = Domain::new(common::options().batch(1_000).deadline_ns(u64::MAX).limit_bytes(64));
    // SAFETY: new objects that nobody else knows; 8 bytes are an eighth of the limit.
    unsafe { domain.retire_with(counted(&drops), 8, |p| drop(Box::from_raw(p))) };
    assert_eq!(drops.load(Ordering::SeqCst), 6);
}

#[test]
fn barrier_frees_everything_retired_before() {
    let drops = drops();
    let domain = Domain::new(common::options().batch(1_000).deadline_ns(u64::MAX));
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..100).for_each(|_| retire(&domain, &drops)));
        }
    });
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    domain.barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 400);
}

#[test]
fn barrier_waits_for_frees_that_run_elsewhere() {
    let domain = Domain::new(common::options().batch(1_000).deadline_ns(u64::MAX));
    let (begun, done) = (Arc::new(std::sync::Barrier::new(2)), drops());
    let (in_callback, count) = (begun.clone(), done.clone());
    let slow = move || {
        in_callback.wait();
        std::thread::sleep(std::time::Duration::from_millis(50));
        count.fetch_add(1, Ordering::SeqCst);
    };
    domain.defer(slow);
    std::thread::scope(|s| {
        s.spawn(|| domain.barrier());
        begun.wait();
        domain.barrier();
        assert_eq!(done.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn dropping_the_last_handle_frees_everything() {
    let drops = drops();
    let domain = Domain::new(common::options().batch(1_000).deadline_ns(u64::MAX));
    let reader = domain.register("reader").unwrap();
    let guard = reader.lock();
    retire(&domain, &drops);
    drop(domain);
    assert_eq!(drops.load(Ordering::SeqCst), 0, "a reader holds a handle, and is in a section");
    drop(guard);
    drop(reader);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

/// Dropping a handle frees what it can, even if its batch is not full, because there may be no later call.
#[test]
fn dropping_any_handle_frees_what_it_can() {
    let drops = drops();
    let domain = Domain::new(common::options().batch(1_000).deadline_ns(u64::MAX));
    retire(&domain, &drops);
    drop(domain.clone());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn the_error_policy_refuses_at_the_limit_and_leaves_the_object() {
    let drops = drops();
    let domain = Domain::new(common::options().limit_objects(2).at_limit(AtLimit::NoWait));
    with_reader_inside(&domain, "reader", || {
        retire(&domain, &drops);
        retire(&domain, &drops);
        let object = counted(&drops);
        // SAFETY: a new object that nobody else knows.
        assert_eq!(unsafe { domain.try_retire(object) }.map_err(|f| f.objects), Err(2));
        // SAFETY: refused, so it is still ours.
        drop(unsafe { Box::from_raw(object) });
        let refused = domain.try_defer(|| ()).unwrap_err();
        (refused.callback)();
        assert_eq!(domain.stats().garbage_objects, 2);
    });
    retire(&domain, &drops);
    domain.barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 4);
}

#[test]
fn the_wait_policy_gives_up_at_its_deadline() {
    let drops = drops();
    let policy = AtLimit::Wait { timeout_ns: 5_000_000 };
    let domain = Domain::new(common::options().limit_bytes(100).at_limit(policy));
    with_reader_inside(&domain, "reader", || {
        domain.defer_sized(100, || ());
        let start = std::time::Instant::now();
        assert!(domain.try_defer_sized(1, || ()).is_err());
        assert!(start.elapsed().as_nanos() >= 5_000_000);
    });
    domain.defer_sized(1, || ());
    let _ = drops;
}

#[test]
fn the_reclaim_policy_holds_the_limit() {
    let options = common::options().limit_objects(8).at_limit(AtLimit::Reclaim);
    let domain = Domain::new(options.patience_ns(0));
    let drops = drops();
    let stop = AtomicUsize::new(0);
    std::thread::scope(|s| {
        let (domain, drops, stop) = (&domain, &drops, &stop);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(move || {
                    while stop.load(Ordering::Relaxed) == 0 {
                        let _guard = domain.lock();
                        (0..200).for_each(|_| std::hint::spin_loop());
                    }
                })
            })
            .collect();
        (0..3_000).for_each(|_| retire(domain, drops));
        stop.store(1, Ordering::Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
    });
    assert!(domain.stats().peak_objects <= 8);
    domain.barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 3_000);
}

#[test]
fn the_reclaim_policy_exceeds_the_limit_rather_than_deadlock() {
    let domain = Domain::new(common::options().limit_objects(1).at_limit(AtLimit::Reclaim));
    let drops = drops();
    let guard = domain.lock();
    (0..3).for_each(|_| retire(&domain, &drops));
    assert_eq!(domain.stats().garbage_objects, 3);
    drop(guard);
    domain.barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 3);
}

/// Each link retires the next as it is dropped.
struct Link {
    domain: Domain,
    next: *mut Link,
    drops: Arc<AtomicUsize>,
}
// SAFETY: the pointer is the only one to its link.
unsafe impl Send for Link {}
impl Drop for Link {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
        if !self.next.is_null() {
            // SAFETY: from a box, and this is the only pointer to it.
            unsafe { self.domain.retire(self.next) };
        }
    }
}

#[test]
fn a_long_chain_of_retiring_drops_needs_no_stack() {
    for batch in [1, 16] {
        let (domain, drops) = (Domain::new(common::options().batch(batch)), drops());
        let mut head = ptr::null_mut();
        for _ in 0..20_000 {
            head = Box::into_raw(Box::new(Link { domain: domain.clone(), next: head, drops: drops.clone() }));
        }
        // SAFETY: from a box, and this is the only pointer to it.
        unsafe { domain.retire(head) };
        while drops.load(Ordering::SeqCst) < 20_000 {
            domain.barrier();
        }
        assert_eq!(domain.stats().garbage_objects, 0);
    }
}

#[test]
fn a_panic_in_a_callback_leaves_the_domain_usable() {
    let (domain, drops) = (common::domain(), drops());
    let panic =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| domain.defer(|| panic!("expected"))));
    assert!(panic.is_err());
    assert_eq!(domain.stats().garbage_objects, 0, "what panicked is freed too");
    retire(&domain, &drops);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    domain.barrier();
}

/// A batch of callbacks, some of which panic.
fn defer_some_that_panic(domain: &Domain, drops: &Arc<AtomicUsize>) {
    for i in 0..10 {
        let drops = drops.clone();
        let callback = move || {
            drops.fetch_add(1, Ordering::SeqCst);
            assert!(i % 4 != 1, "expected");
        };
        domain.defer(callback);
    }
}

#[test]
fn a_panic_in_a_callback_leaks_nothing_of_its_batch() {
    let (domain, drops) = (Domain::new(common::options().batch(1_000).deadline_ns(u64::MAX)), drops());
    defer_some_that_panic(&domain, &drops);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| domain.barrier())).is_err());
    assert_eq!((drops.load(Ordering::SeqCst), domain.stats().garbage_objects), (10, 0));
    // The domain's end.
    defer_some_that_panic(&domain, &drops);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(domain))).is_err());
    assert_eq!(drops.load(Ordering::SeqCst), 20);
}

#[test]
fn the_reclaimer_thread_outlives_a_panic() {
    let (domain, drops) = (Domain::new(common::options().batch(4).deadline_ns(100_000)), drops());
    let _reclaimer = domain.spawn_reclaimer().unwrap();
    for round in 1..=3 {
        defer_some_that_panic(&domain, &drops);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while drops.load(Ordering::SeqCst) < round * 10 {
            assert!(std::time::Instant::now() < end, "round {round}: {:?}", domain.stats());
            std::thread::yield_now();
        }
    }
}

/// A value that counts its drops, in a cell.
fn cell(domain: &Domain, drops: &Arc<AtomicUsize>) -> RcuCell<Counted> {
    RcuCell::in_domain(domain, Counted(drops.clone()))
}

#[test]
fn a_refused_replacement_leaves_the_cell_as_it_was() {
    for policy in [AtLimit::NoWait, AtLimit::Wait { timeout_ns: 1_000_000 }] {
        let (domain, old, new) =
            (Domain::new(common::options().limit_objects(1).at_limit(policy)), drops(), drops());
        let cell = cell(&domain, &old);
        with_reader_inside(&domain, "reader", || {
            domain.defer(|| ());
            let held = |cell: &RcuCell<Counted>| Arc::ptr_eq(&cell.load(&domain.lock()).0, &old);
            assert!(cell.try_replace(Counted(new.clone())).is_err());
            assert!(held(&cell), "not replaced");
            assert_eq!(new.load(Ordering::SeqCst), 1, "the new value is dropped");
            assert!(cell.try_update(|_| unreachable!("refused before")).is_err());
            assert!(held(&cell), "not updated");
            // The cell's end cannot be refused.
            drop(cell);
            assert_eq!((old.load(Ordering::SeqCst), domain.stats().garbage_objects), (0, 2));
        });
        domain.barrier();
        assert_eq!((old.load(Ordering::SeqCst), domain.stats().garbage_objects), (1, 0));
    }
}

#[test]
fn room_that_is_not_used_is_given_back() {
    let (domain, drops) = (common::domain(), drops());
    let cell = cell(&domain, &drops);
    let panic = || cell.update(|_| panic!("expected"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panic)).is_err());
    assert_eq!((domain.stats().garbage_objects, domain.stats().garbage_bytes), (0, 0));
}

#[test]
fn a_slot_pins_one_object_and_delays_no_other() {
    let (domain, drops) = (common::domain(), drops());
    let shared = AtomicPtr::new(counted(&drops));
    let reader = domain.register("reader").unwrap();
    let mut slot = reader.slot().unwrap();
    // SAFETY: the traversal is one load, of a pointer that is retired after it is unlinked.
    let pinned = unsafe { slot.acquire(|| shared.load(Ordering::Acquire).cast_const()) }.unwrap();
    // SAFETY: unlinked by the swap.
    unsafe { domain.retire(shared.swap(ptr::null_mut(), Ordering::AcqRel)) };
    retire(&domain, &drops);
    assert_eq!(drops.load(Ordering::SeqCst), 1, "the other one");
    domain.barrier();
    assert_eq!(pinned.0.load(Ordering::SeqCst), 1, "the pinned object lives");
    drop(pinned);
    domain.reclaim_now();
    assert_eq!(drops.load(Ordering::SeqCst), 2);
    // SAFETY: as above.
    assert!(unsafe { slot.acquire(|| shared.load(Ordering::Acquire).cast_const()) }.is_none());
}

#[test]
fn slots_are_limited_and_used_again() {
    let domain = Domain::new(common::options().limit_slots(1));
    let reader = domain.register("reader").unwrap();
    for _ in 0..10 {
        let _slot = reader.slot().unwrap();
        assert_eq!(reader.slot().err().map(|e| e.limit), Some(1));
    }
}

#[test]
fn the_reclaimer_thread_frees_without_further_calls() {
    let (domain, drops) = (Domain::new(common::options().batch(64).deadline_ns(1_000_000)), drops());
    let reclaimer = domain.spawn_reclaimer().unwrap();
    assert!(domain.spawn_reclaimer().is_err(), "one per domain");
    for round in 1..=20 {
        if round % 5 == 0 {
            // Long enough for the thread to sleep until it is woken, and not only until a deadline.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        (0..10).for_each(|_| retire(&domain, &drops));
        while drops.load(Ordering::SeqCst) < round * 10 {
            std::thread::yield_now();
        }
    }
    let used_ns = reclaimer.cpu_ns();
    // The portable half has no clock for a thread.
    assert!(cfg!(reprieve_fallback) || used_ns > 0, "20 rounds take time");
    assert!(reclaimer.cpu_ns() >= used_ns);
    drop(reclaimer);
    retire(&domain, &drops);
    domain.barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 201);
    assert!(domain.spawn_reclaimer().is_ok());
}

#[test]
fn concurrent_writers_and_barriers_lose_nothing() {
    for options in
        [common::options(), common::options().batch(32), common::options().batch(32).limit_objects(40)]
    {
        let (domain, drops) = (Domain::new(options), drops());
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for i in 0..2_000 {
                        retire(&domain, &drops);
                        if i % 500 == 0 {
                            domain.barrier();
                        }
                    }
                });
            }
        });
        domain.barrier();
        assert_eq!(drops.load(Ordering::SeqCst), 6_000);
        assert_eq!(domain.stats().garbage_bytes, 0);
        assert!(size_of::<Counted>() > 0);
    }
}

/// By default a call that retires waits a millisecond for room, and then exceeds the limit, because the caller may
/// hold a lock that a reader waits for.
#[test]
fn a_writer_that_holds_what_a_reader_waits_for_does_not_wait_for_ever() {
    let domain = Domain::new(common::options().limit_objects(1));
    let lock = std::sync::Mutex::new(());
    let inside = std::sync::Barrier::new(2);
    let held = lock.lock().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let _guard = domain.lock();
            inside.wait();
            drop(lock.lock());
        });
        inside.wait();
        let (map, cell) = (reprieve_rcu::RcuMap::new(&domain), RcuCell::in_domain(&domain, 1));
        map.insert(1, 1);
        (0..5).for_each(|_| domain.defer(|| ()));
        drop((map, cell));
        assert!(domain.try_defer(|| ()).is_err());
        let stats = domain.stats();
        assert!(stats.exceeded >= 4 && stats.garbage_objects > 1, "{stats:?}");
        drop(held);
    });
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0);
}

#[test]
fn objects_without_a_fixed_size_are_retired() {
    let (domain, drops) =
        (Domain::new(common::options().limit_objects(2).at_limit(AtLimit::NoWait)), drops());
    let object: Box<dyn Send> = Box::new([(); 3].map(|()| Counted(drops.clone())));
    let slice: Box<[Counted]> = [(); 4].map(|()| Counted(drops.clone())).into();
    let bytes = size_of_val(&*object) + size_of_val(&*slice);
    let (object, slice) = (Box::into_raw(object), Box::into_raw(slice));
    with_reader_inside(&domain, "reader", || {
        // SAFETY: from boxes, and nobody reads them.
        unsafe {
            domain.retire_box(object);
            domain.retire_box(slice);
        }
        assert_eq!((drops.load(Ordering::SeqCst), domain.stats().garbage_bytes), (0, bytes));
        domain.defer_drop(Counted(drops.clone()));
        assert_eq!((drops.load(Ordering::SeqCst), domain.stats().garbage_objects), (0, 3));
    });
    domain.barrier();
    assert_eq!((drops.load(Ordering::SeqCst), domain.stats().garbage_bytes), (8, 0));
}
