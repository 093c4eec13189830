//! Cells: how they are written, and what their values are used for meanwhile. All of it is safe code.
#![forbid(unsafe_code)]

#[path = "common/canary.rs"]
mod canary;
mod common;

use canary::Canary;
use common::with_reader_inside;
use reprieve_rcu::{AtLimit, Domain, RcuCell, field};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

fn drops() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

fn count(drops: &AtomicUsize) -> usize {
    drops.load(Ordering::SeqCst)
}

/// Whether the calling thread, or another, is in a section of `domain`.
fn is_in_section(domain: &Domain) -> bool {
    !domain.check(domain.start())
}

/// Writes that cannot fail exceed the limits; the others are refused.
#[test]
fn writes_exceed_the_limits_unless_they_are_tries() {
    for policy in [AtLimit::NoWait, AtLimit::Wait { timeout_ns: 100_000 }] {
        let domain = Domain::new(common::options().limit_objects(1).at_limit(policy));
        let cell = RcuCell::in_domain(&domain, 0u64);
        with_reader_inside(&domain, "reader", || {
            (1..=3).for_each(|v| cell.replace(v));
            cell.update(|v| v + 1);
            cell.compare_exchange(&cell.hold(), 5).unwrap();
            assert!(cell.try_replace(9).is_err() && cell.try_update(|_| unreachable!("refused")).is_err());
            assert_eq!((cell.get(), domain.stats().garbage_objects), (5, 5));
        });
        domain.barrier();
        assert_eq!((cell.try_replace(6), cell.try_update(|v| v + 1)), (Ok(()), Ok(())));
        assert_eq!((cell.get(), domain.stats().garbage_objects), (7, 0));
    }
}

/// The object counts, not its value. Its address is not used again while the caller has a reference.
#[test]
fn compare_exchange_tells_an_object_from_its_equal() {
    let domain = common::domain();
    let cell = RcuCell::in_domain(&domain, 1u64);
    let guard = domain.lock();
    let (seen, held) = (cell.load(&guard), cell.hold());
    for _ in 0..100 {
        cell.replace(2);
        cell.replace(1);
        assert_eq!(
            (*seen, cell.compare_exchange(seen, 3), cell.compare_exchange(&held, 3)),
            (1, Err(3), Err(3))
        );
    }
    assert_eq!(cell.compare_exchange(&1, 3), Err(3), "a value elsewhere");
    drop(guard);
    cell.with(|now| cell.compare_exchange(now, 4)).unwrap();
    assert_eq!((cell.get(), *held), (4, 1));
}

#[test]
fn compare_exchange_loses_no_change() {
    let (domain, drops) = (common::domain(), drops());
    let cell = RcuCell::in_domain(&domain, Canary::new(0, &drops));
    let add = |reference: &Canary| {
        cell.compare_exchange(reference, Canary::new(reference.check() + 1, &drops)).is_ok()
    };
    thread::scope(|s| {
        let (add, cell, domain) = (&add, &cell, &domain);
        let by_section = move || while !add(cell.load(&domain.lock())) {};
        let by_slot = move || while !add(&cell.hold()) {};
        s.spawn(move || (0..2_000).for_each(|_| by_section()));
        s.spawn(move || (0..2_000).for_each(|_| by_slot()));
        s.spawn(|| (0..2_000).for_each(|_| cell.update(|old| Canary::new(old.check() + 1, &drops))));
    });
    assert_eq!(cell.with(Canary::check), 6_000);
}

/// While a closure runs on a value, that value waits, and nothing else does.
#[test]
fn a_value_in_use_delays_no_other() {
    let (domain, drops) = (common::domain(), drops());
    let cell = RcuCell::in_domain(&domain, Canary::new(1, &drops));
    let other = RcuCell::in_domain(&domain, Canary::new(2, &drops));
    cell.with(|value| {
        (0..3).for_each(|_| cell.replace(Canary::new(3, &drops)));
        other.replace(Canary::new(4, &drops));
        assert_eq!((count(&drops), domain.stats().garbage_objects, value.check()), (3, 1, 1));
        domain.barrier();
        assert_eq!((count(&drops), value.check()), (3, 1));
    });
    domain.reclaim_now();
    assert_eq!((count(&drops), domain.stats().garbage_objects), (4, 0));
}

#[test]
fn an_update_that_another_writer_overtook_is_made_again() {
    let cell = RcuCell::new(1);
    let mut calls = 0;
    cell.update(|old| {
        calls += 1;
        if calls == 1 {
            cell.replace(10);
        }
        old + 1
    });
    assert_eq!((cell.get(), calls), (11, 2));
}

/// What `update` replaces is freed within the call, because the call no longer pins it then.
#[test]
fn an_update_frees_what_it_replaced() {
    let (domain, drops) = (common::domain(), drops());
    let cell = RcuCell::in_domain(&domain, Canary::new(1, &drops));
    cell.update(|old| Canary::new(old.check() + 1, &drops));
    assert_eq!((count(&drops), domain.stats().garbage_objects), (1, 0));
}

/// A closure that uses its own cell and others is protected in all of them.
#[test]
fn closures_within_closures_protect_their_values() {
    let (domain, drops) = (common::domain(), drops());
    let [outer, inner] = [1, 2].map(|n| RcuCell::in_domain(&domain, Canary::new(n, &drops)));
    outer.with(|first| {
        assert!(!is_in_section(&domain), "pinned");
        inner.with(|second| {
            assert!(is_in_section(&domain), "the slot is in use: a section");
            outer.with(|again| {
                for cell in [&outer, &inner] {
                    cell.replace(Canary::new(9, &drops));
                    cell.update(|old| Canary::new(old.check(), &drops));
                }
                domain.reclaim_now();
                assert_eq!((first.check(), second.check(), again.check()), (1, 2, 1));
            });
        });
        assert!(!is_in_section(&domain));
        domain.reclaim_now();
        assert_eq!((first.check(), count(&drops)), (1, 3), "all but the first");
    });
    domain.barrier();
    assert_eq!(count(&drops), 4);
}

/// A value whose clone does `action`.
struct Acts<'a, F: Fn(u32)>(u32, &'a F);

impl<F: Fn(u32)> Clone for Acts<'_, F> {
    fn clone(&self) -> Self {
        (self.1)(self.0);
        Acts(self.0, self.1)
    }
}

#[test]
fn clone_may_clone_the_same_cell() {
    static DEPTH: AtomicUsize = AtomicUsize::new(0);
    type Recurs = Acts<'static, fn(u32)>;
    static CELL: RcuCell<Option<Recurs>> = RcuCell::none();
    static ACTION: fn(u32) = |_| {
        if DEPTH.fetch_add(1, Ordering::SeqCst) < 20 {
            let inner = CELL.get_cloned().unwrap();
            assert_eq!(inner.0, 5);
            CELL.replace(Some(Acts(5, &ACTION)));
        }
    };
    CELL.replace(Some(Acts(5, &ACTION)));
    assert_eq!(CELL.get_cloned().unwrap().0, 5);
    assert_eq!(DEPTH.load(Ordering::SeqCst), 21);
    drop(CELL.hold());
}

#[test]
fn a_panic_in_clone_or_a_closure_releases_the_value() {
    static PANICS: fn(u32) = |n| assert!(n != 13, "expected");
    let (domain, drops) = (common::domain(), drops());
    let unlucky = RcuCell::in_domain(&domain, Acts(13, &PANICS));
    let cell = RcuCell::in_domain(&domain, Canary::new(1, &drops));
    assert!(catch_unwind(AssertUnwindSafe(|| unlucky.get_cloned())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| cell.with(|_| panic!("expected")))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| cell.update(|_| panic!("expected")))).is_err());
    assert!(!is_in_section(&domain));
    cell.replace(Canary::new(2, &drops));
    assert_eq!((count(&drops), domain.stats().garbage_objects), (1, 0));
    cell.with(|_| assert!(!is_in_section(&domain), "the slot is free again"));
}

/// Destructors that run as the domain frees may use cells of that domain.
#[test]
fn a_destructor_may_use_cells() {
    struct Uses(RcuCell<Canary>, Arc<AtomicUsize>);
    impl Drop for Uses {
        fn drop(&mut self) {
            let held = self.0.hold();
            self.0.with(|value| {
                self.0.replace(Canary::new(2, &self.1));
                self.0.update(|old| Canary::new(old.check() + 1, &self.1));
                assert_eq!((value.check(), held.check(), self.0.with(Canary::check)), (1, 1, 3));
            });
        }
    }
    let (domain, drops) = (common::domain(), drops());
    let uses = || Uses(RcuCell::in_domain(&domain, Canary::new(1, &drops)), drops.clone());
    let cell = RcuCell::in_domain(&domain, uses());
    cell.replace(uses());
    drop(cell);
    domain.barrier();
    assert_eq!(count(&drops), 6);
}

/// Threads give their slots back when they end.
#[test]
fn a_slot_is_used_again_by_the_next_thread() {
    let domain = Domain::new(common::options().limit_slots(1));
    let cell = RcuCell::in_domain(&domain, 1u64);
    for _ in 0..20 {
        let pins = || cell.with(|_| assert!(!is_in_section(&domain), "there is a slot"));
        // Joined by hand: the scope itself does not wait for the thread's end.
        thread::scope(|s| s.spawn(pins).join().unwrap());
    }
    assert!(cell.try_hold().is_ok());
}

#[test]
fn without_a_slot_values_are_read_in_a_section() {
    let (domain, drops) = (Domain::new(common::options().limit_slots(1)), drops());
    let cell = RcuCell::in_domain(&domain, Canary::new(1, &drops));
    let only = cell.hold();
    assert_eq!(cell.try_hold().err().map(|e| e.limit), Some(1));
    cell.with(|value| {
        assert!(is_in_section(&domain));
        cell.replace(Canary::new(2, &drops));
        assert_eq!((value.check(), count(&drops)), (1, 0));
    });
    let beyond = cell.hold();
    assert_eq!((only.check(), beyond.check()), (1, 2));
}

/// Slots that a thread has in domains that are gone are not mistaken for those of later domains, which may have the
/// same address.
#[test]
fn many_short_lived_domains_on_one_thread() {
    let lasting = RcuCell::in_domain(&common::domain(), 1u64);
    for i in 0..300u64 {
        // The thread forgets the last round's domain here, and the next one may get its memory.
        drop(common::domain().lock());
        let domain = Domain::new(common::options().limit_slots(1));
        let cell = RcuCell::in_domain(&domain, i.to_string());
        if i % 3 == 0 {
            lasting.with(|_| ());
        }
        cell.with(|value| {
            cell.replace(String::new());
            assert_eq!((value, domain.stats().garbage_objects), (&i.to_string(), 1), "it is pinned");
            assert!(!is_in_section(&domain));
        });
        assert!(cell.try_hold().is_err(), "the thread has the domain's only slot");
    }
}

/// Destructors of thread-local variables, which run as the thread ends, in either order with its slot's end.
#[test]
fn thread_local_destructors_use_cells() {
    static CELL: RcuCell<Option<String>> = RcuCell::lazy(|| Some("first".to_owned()));
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    struct AtEnd;
    impl Drop for AtEnd {
        fn drop(&mut self) {
            assert!(CELL.get_cloned().is_some() && CELL.hold().is_some());
            CELL.with(|value| {
                CELL.replace(Some("another".to_owned()));
                assert!(value.is_some() && CELL.get_cloned().as_deref() == Some("another"));
            });
            ENDED.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local! {
        static BEFORE: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    thread::spawn(|| {
        BEFORE.with(|b| *b.borrow_mut() = Some(AtEnd));
        CELL.with(|_| AFTER.with(|a| *a.borrow_mut() = Some(AtEnd)));
    })
    .join()
    .unwrap();
    thread::spawn(|| BEFORE.with(|b| *b.borrow_mut() = Some(AtEnd))).join().unwrap();
    assert_eq!(ENDED.load(Ordering::SeqCst), 3);
}

#[test]
fn an_arc_outlives_its_cell_and_the_old_one_is_freed_at_once() {
    let (domain, drops) = (common::domain(), drops());
    let cell: RcuCell<Arc<dyn Fn() -> u64 + Send + Sync>> = {
        let canary = Canary::new(1, &drops);
        RcuCell::in_domain(&domain, Arc::new(move || canary.check()))
    };
    let mine = cell.load_arc();
    cell.replace(Arc::new(|| 2));
    assert_eq!((Arc::strong_count(&mine), domain.stats().garbage_objects), (1, 0));
    assert_eq!((cell.load_arc()(), mine()), (2, 1));
    drop((cell, domain));
    assert_eq!(mine(), 1);
    drop(mine);
    assert_eq!(count(&drops), 1);
}

#[derive(Clone)]
struct Large {
    before: [u64; 40],
    nested: (u8, Nested),
    name: String,
    after: [u8; 3],
    none: (),
}

#[derive(Clone)]
struct Nested {
    small: u16,
    twins: [u64; 20],
}

#[test]
fn fields_of_all_sizes_are_copied() {
    let nested = (1, Nested { small: 2, twins: [3; 20] });
    let large = Large { before: [4; 40], nested, name: "five".to_owned(), after: [6; 3], none: () };
    let fenced = Domain::new(common::options().fencing(reprieve_rcu::Fencing::Fenced));
    for domain in [&common::domain(), &fenced] {
        let cell = RcuCell::in_domain(domain, large.clone());
        assert_eq!(cell.get_field(field!(Large, before)), [4; 40]);
        assert_eq!(cell.get_field(field!(Large, nested.0)), 1);
        assert_eq!(cell.get_field(field!(Large, nested.1.small)), 2);
        assert_eq!(cell.get_field(field!(Large, nested.1.twins)), [3; 20]);
        assert_eq!(cell.get_field(field!(Large, after)), [6; 3]);
        cell.get_field(field!(Large, none));
        assert_eq!(cell.with(|v| v.name.len()), 4);
    }
}

/// Readers of every kind under writers of every kind, for a moment.
#[test]
fn values_live_as_long_as_they_are_used() {
    let (domain, drops) = (common::domain(), drops());
    let cell = RcuCell::in_domain(&domain, Arc::new(Canary::new(0, &drops)));
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(1));
    let new = || {
        let number = made.fetch_add(1, Ordering::SeqCst) as u64;
        Arc::new(Canary::new(number, &drops))
    };
    thread::scope(|s| {
        let (cell, stop, new) = (&cell, &stop, &new);
        let readers: [fn(&RcuCell<Arc<Canary>>); 5] = [
            |cell| _ = cell.load_arc().check(),
            |cell| cell.with(|value| (0..100).for_each(|_| _ = value.check())),
            |cell| cell.with(|outer| cell.with(|inner| _ = outer.check() + inner.check())),
            |cell| _ = cell.hold().check(),
            |cell| _ = cell.load(&cell.domain().lock()).check(),
        ];
        for read in readers {
            s.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    read(cell);
                }
            });
        }
        s.spawn(move || {
            for _ in 0..3_000 {
                cell.replace(new());
                cell.update(|_| new());
                let _ = cell.compare_exchange(&cell.hold(), new());
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    drop(cell);
    domain.barrier();
    assert_eq!(count(&drops), made.load(Ordering::SeqCst));
}
