//! `Held`: kept for any time, leaked, sent to other threads, and dropped after its cell, its domain or its thread.
#![forbid(unsafe_code)]

mod common;

#[path = "common/canary.rs"]
mod canary;

use canary::Canary;
use reprieve_rcu::{Domain, Held, RcuCell};
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

fn setting() -> (Domain, RcuCell<Canary>, Arc<AtomicUsize>) {
    let (domain, drops) = (common::domain(), Arc::new(AtomicUsize::new(0)));
    let cell = RcuCell::in_domain(&domain, Canary::new(1, &drops));
    (domain, cell, drops)
}

fn count(drops: &AtomicUsize) -> usize {
    drops.load(Ordering::SeqCst)
}

#[test]
fn one_value_is_kept_and_freed_when_it_is_let_go() {
    let (domain, cell, drops) = setting();
    let (first, again) = (cell.hold(), cell.hold());
    (2..10).for_each(|n| cell.replace(Canary::new(n, &drops)));
    assert!(domain.check(domain.start()), "no section");
    assert_eq!((first.check(), again.check(), count(&drops), domain.stats().garbage_objects), (1, 1, 7, 1));
    drop(first);
    domain.barrier();
    assert_eq!((again.check(), count(&drops)), (1, 7));
    drop(again);
    assert_eq!((count(&drops), domain.stats().garbage_objects), (8, 0), "by the last one's drop");
}

/// Slots are used again, so that many guards one after the other need only one.
#[test]
fn slots_are_given_back() {
    let domain = Domain::new(common::options().limit_slots(1));
    let cell = RcuCell::in_domain(&domain, 1);
    for _ in 0..10 {
        let held = cell.try_hold().unwrap();
        assert!(cell.try_hold().is_err());
        assert_eq!(*held, 1);
    }
}

#[test]
fn it_outlives_the_cell_and_every_other_handle_of_the_domain() {
    let (domain, cell, drops) = setting();
    let held = cell.hold();
    drop(cell);
    drop(domain);
    assert_eq!((held.check(), count(&drops)), (1, 0));
    drop(held);
    assert_eq!(count(&drops), 1);
}

#[test]
fn a_leaked_one_keeps_one_object_and_nothing_more() {
    let (domain, cell, drops) = setting();
    std::mem::forget(cell.hold());
    let for_ever: &'static Held<Canary> = Box::leak(Box::new(cell.hold()));
    let value: &'static Canary = for_ever;
    (0..10).for_each(|n| cell.replace(Canary::new(n, &drops)));
    domain.barrier();
    assert_eq!((count(&drops), domain.stats().garbage_objects), (9, 1));
    drop(cell);
    assert_eq!(count(&drops), 10);
    drop(domain);
    assert_eq!((value.check(), count(&drops)), (1, 10));
}

/// Made by a thread that ends before other threads use the value, replace it and let it go.
#[test]
fn it_outlives_the_thread_that_made_it() {
    let (domain, cell, drops) = setting();
    let held = thread::scope(|s| s.spawn(|| cell.hold()).join().unwrap());
    // What the thread gave back is in use again.
    thread::scope(|s| s.spawn(|| cell.with(|_| drop(cell.hold()))).join().unwrap());
    cell.replace(Canary::new(2, &drops));
    assert_eq!((held.check(), count(&drops)), (1, 0));
    let borrowed: &Canary = &held;
    thread::scope(|s| (0..4).for_each(|_| _ = s.spawn(|| assert_eq!(borrowed.check(), 1))));
    thread::spawn(move || assert_eq!(held.check(), 1)).join().unwrap();
    assert_eq!((count(&drops), domain.stats().garbage_objects), (1, 0));
}

#[test]
fn it_is_let_go_by_a_destructor_of_the_thread_s_end() {
    thread_local!(static KEPT: RefCell<Option<Held<Canary>>> = const { RefCell::new(None) });
    let (domain, cell, drops) = setting();
    thread::scope(|s| {
        // Joined by hand, because the scope itself does not wait for destructors.
        s.spawn(|| {
            KEPT.with(|k| *k.borrow_mut() = Some(cell.hold()));
            cell.replace(Canary::new(2, &drops));
            assert_eq!(count(&drops), 0);
        })
        .join()
        .unwrap();
    });
    assert_eq!((count(&drops), domain.stats().garbage_objects), (1, 0));
}

/// It may indirectly own what owns it: a value may hold a value of its own cell's domain.
#[test]
fn a_value_may_hold_another_of_its_domain() {
    struct Link(#[allow(dead_code)] Option<Held<Canary>>, #[allow(dead_code)] Canary);
    let (domain, cell, drops) = setting();
    let chain = RcuCell::in_domain(&domain, Link(Some(cell.hold()), Canary::new(2, &drops)));
    cell.replace(Canary::new(3, &drops));
    domain.barrier();
    assert_eq!(count(&drops), 0);
    chain.replace(Link(None, Canary::new(4, &drops)));
    domain.barrier();
    assert_eq!(count(&drops), 2, "the link, and then what it held");
}

#[test]
fn dropped_within_a_section_it_waits_for_nobody() {
    let (domain, cell, drops) = setting();
    let held = cell.hold();
    let guard = domain.lock();
    cell.replace(Canary::new(2, &drops));
    drop(held);
    assert_eq!(count(&drops), 0);
    drop(guard);
    domain.reclaim_now();
    assert_eq!(count(&drops), 1);
}

/// Guards that are sent between threads, while other guards of the domain come and go, beside a writer.
#[test]
fn guards_travel_under_load() {
    let (domain, cell, drops) = setting();
    let (send, receive) = mpsc::sync_channel::<Held<Canary>>(16);
    let made = AtomicUsize::new(1);
    thread::scope(|s| {
        for _ in 0..2 {
            let send = send.clone();
            let cell = &cell;
            s.spawn(move || (0..3_000).for_each(|_| send.send(cell.hold()).unwrap()));
        }
        drop(send);
        s.spawn(move || receive.iter().for_each(|held| _ = held.check()));
        s.spawn(|| {
            for _ in 0..5_000 {
                cell.replace(Canary::new(made.fetch_add(1, Ordering::SeqCst) as u64, &drops));
            }
        });
    });
    drop(cell);
    domain.barrier();
    assert_eq!(count(&drops), made.load(Ordering::SeqCst));
}

#[test]
fn guards_are_send_and_sync() {
    fn both<T: Send + Sync + 'static>() {}
    both::<Held<String>>();
    both::<RcuCell<String>>();
    both::<reprieve_rcu::Field<std::cell::Cell<u8>, u8>>();
}
