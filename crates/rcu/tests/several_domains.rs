//! Callbacks that use other domains, or own the last handle of their own.
#![forbid(unsafe_code)]

mod common;

use common::Counted;
use reprieve_rcu::{Domain, RcuCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn count(runs: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let runs = runs.clone();
    move || {
        runs.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_a_callback_retires_elsewhere_is_freed_there() {
    let (one, other, runs) = (common::domain(), common::domain(), Arc::new(AtomicUsize::new(0)));
    let (for_callback, counts) = (other.clone(), count(&runs));
    one.defer(move || for_callback.defer(counts));
    assert_eq!((runs.load(Ordering::SeqCst), other.stats().garbage_objects), (1, 0));
}

#[test]
fn a_callback_may_wait_for_another_domains_barrier() {
    let (one, other) = (common::domain(), Domain::new(common::options().batch(100)));
    let runs = Arc::new(AtomicUsize::new(0));
    other.defer(count(&runs));
    let for_callback = other.clone();
    one.defer(move || for_callback.barrier());
    assert_eq!((runs.load(Ordering::SeqCst), other.stats().garbage_objects), (1, 0));
}

#[test]
#[should_panic(expected = "within a callback of its domain")]
fn a_callback_that_waits_for_its_own_domain_through_another_panics() {
    let (one, other) = (common::domain(), common::domain());
    let (outer, inner) = (one.clone(), other.clone());
    one.defer(move || inner.defer(move || outer.barrier()));
}

/// Each callback retires the next one in the other domain. The stack must not overflow.
#[test]
fn domains_that_retire_in_each_other_by_turns_need_no_stack() {
    fn step(here: Domain, there: Domain, left: usize, runs: Arc<AtomicUsize>) {
        runs.fetch_add(1, Ordering::SeqCst);
        if left > 0 {
            let next = there.clone();
            there.defer(move || step(next, here, left - 1, runs));
        }
    }
    let (one, other, runs) = (common::domain(), common::domain(), Arc::new(AtomicUsize::new(0)));
    step(one.clone(), other.clone(), 100_000, runs.clone());
    assert_eq!(runs.load(Ordering::SeqCst), 100_001);
    assert_eq!((one.stats().garbage_objects, other.stats().garbage_objects), (0, 0));
}

/// A domain that its own garbage owns still ends once its last other handle is dropped.
#[test]
fn a_queued_callback_that_owns_the_last_handle_runs() {
    for options in [common::options(), common::options().batch(100).deadline_ns(u64::MAX)] {
        let (domain, drops) = (Domain::new(options), Arc::new(AtomicUsize::new(0)));
        let (own, counted) = (domain.clone(), Counted(drops.clone()));
        let guard = domain.lock();
        domain.defer(move || drop((own, counted)));
        drop(guard);
        drop(domain);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

/// The same with cells of the domain within a value of the domain, so that one object owns many handles.
#[test]
fn a_value_that_owns_the_last_handles_is_dropped() {
    let (domain, drops) = (Domain::new(common::options().batch(100)), Arc::new(AtomicUsize::new(0)));
    let inner: Vec<_> = (0..10).map(|_| RcuCell::in_domain(&domain, Counted(drops.clone()))).collect();
    let outer = RcuCell::in_domain(&domain, inner);
    drop(domain);
    drop(outer);
    assert_eq!(drops.load(Ordering::SeqCst), 10);
}

/// A reclaimer thread ends by itself if a callback of its own domain owns its handle.
#[test]
fn a_callback_may_own_its_reclaimer() {
    let (domain, runs) = (common::domain(), Arc::new(AtomicUsize::new(0)));
    let reclaimer = domain.spawn_reclaimer().unwrap();
    domain.defer(move || drop(reclaimer));
    domain.barrier();
    domain.defer(count(&runs));
    domain.barrier();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
