//! Guards, readers and views that safe code leaks, or whose references it sends to other threads: none may lead to
//! freed memory, and none may make a domain hang as it ends. All of it is safe code.
#![forbid(unsafe_code)]

mod common;

use common::Counted;
use reprieve_rcu::{Domain, Guard, RcuCell, RcuMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A value that counts its drop, and whose memory shows whether it was dropped.
struct Canary {
    words: [u64; 8],
    _drop: Counted,
}

const ALIVE: [u64; 8] = [7; 8];

fn canary(drops: &Arc<AtomicUsize>) -> Canary {
    Canary { words: ALIVE, _drop: Counted(drops.clone()) }
}

/// A cell of `domain`, and a reference that a thread got from it before it leaked its guard and ended.
fn borrow_by_leaked_guard<'d>(domain: &'d Domain, cell: &RcuCell<Canary>) -> &'d Canary {
    let find = || {
        let guard: &'d Guard<'d> = Box::leak(Box::new(domain.lock()));
        cell.load(guard)
    };
    thread::scope(|s| s.spawn(find).join().unwrap())
}

#[test]
fn a_leaked_guard_protects_beyond_its_thread() {
    let (domain, drops) = (common::domain(), Arc::new(AtomicUsize::new(0)));
    let cell = RcuCell::in_domain(&domain, canary(&drops));
    let borrowed = borrow_by_leaked_guard(&domain, &cell);
    cell.replace(canary(&drops));
    domain.reclaim_now();
    assert_eq!((borrowed.words, drops.load(Ordering::SeqCst)), (ALIVE, 0), "dropped while it is borrowed");
    let late = domain.stats().late;
    assert_eq!(late.len(), 1, "the section that holds it up is known");
    assert!(late[0].ended && late[0].to_string().contains("has ended"), "{}", late[0]);
    drop((cell, domain));
    assert_eq!(drops.load(Ordering::SeqCst), 2, "the domain's end frees all: no borrow of it is left");
}

/// A value that was found through a leaked reader's section, by a thread that has ended, is not freed.
macro_rules! protects_beyond_its_thread {
    ($name:ident, $reader:ident => $section:expr) => {
        #[test]
        fn $name() {
            let domain = common::domain();
            let map = RcuMap::new(&domain);
            map.insert(1u32, String::from("still here"));
            let find = || {
                #[allow(unused_mut)]
                let mut $reader = Box::leak(Box::new(domain.register("leaky").unwrap()));
                map.get(&1, Box::leak(Box::new($section))).unwrap()
            };
            let borrowed: &String = thread::scope(|s| s.spawn(find).join().unwrap());
            map.remove(&1);
            domain.reclaim_now();
            let _reuse: Vec<String> = (0..64).map(|i| format!("not here {i}")).collect();
            assert_eq!(borrowed, "still here");
            assert_eq!(domain.stats().garbage_objects, 1);
        }
    };
}
protects_beyond_its_thread!(a_leaked_reader_s_guard_protects_beyond_its_thread, reader => reader.lock());
protects_beyond_its_thread!(a_leaked_entered_section_protects_beyond_its_thread, reader => reader.enter());
protects_beyond_its_thread!(a_leaked_online_section_protects_beyond_its_thread, reader => reader.online());

/// References that a nested guard gave out outlive the inner guards.
#[test]
fn only_the_leaked_one_of_nested_guards_stays() {
    let (domain, drops) = (common::domain(), Arc::new(AtomicUsize::new(0)));
    let cell = RcuCell::in_domain(&domain, canary(&drops));
    let borrowed: &Canary = thread::scope(|s| {
        let find = || {
            let _outer = domain.lock();
            let leaked: &Guard<'_> = Box::leak(Box::new(domain.lock()));
            drop(domain.lock());
            cell.load(leaked)
        };
        s.spawn(find).join().unwrap()
    });
    cell.replace(canary(&drops));
    assert_eq!((borrowed.words, drops.load(Ordering::SeqCst)), (ALIVE, 0));
}

/// A leaked section holds up its own domain, but no other domains and no records of other threads.
#[test]
fn a_leaked_guard_holds_up_its_own_domain_alone() {
    let (held, free) = (common::domain(), common::domain());
    thread::scope(|s| {
        s.spawn(|| {
            std::mem::forget(held.lock());
            drop(free.lock());
        });
    });
    assert!(free.check(free.start()));
    assert!(!held.check(held.start()));
    // The thread's id may be used again, and must not make the section look like one of the caller's own.
    let soon = std::time::Instant::now() + std::time::Duration::from_millis(5);
    assert!(held.synchronize_until(soon).is_err_and(|late| late.readers[0].ended));
}

/// Dropping the last handle returns, whatever guards were leaked, and frees everything.
#[test]
fn a_domain_ends_though_a_living_thread_has_leaked_a_guard() {
    let (domain, drops) = (Arc::new(common::domain()), Arc::new(AtomicUsize::new(0)));
    let (leaked, done) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
    let thread = thread::spawn({
        let (domain, leaked, done) = (domain.clone(), leaked.clone(), done.clone());
        move || {
            std::mem::forget(domain.lock());
            drop(domain);
            leaked.wait();
            done.wait();
        }
    });
    leaked.wait();
    let counted = Counted(drops.clone());
    domain.defer(move || drop(counted));
    drop(domain);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    done.wait();
    thread.join().unwrap();
}

#[test]
fn a_domain_ends_though_this_thread_has_leaked_a_guard() {
    let (domain, drops) = (common::domain(), Arc::new(AtomicUsize::new(0)));
    std::mem::forget(domain.lock());
    let counted = Counted(drops.clone());
    domain.defer(move || drop(counted));
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(domain);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

/// A leaked slot pins its object only as long as its domain lives.
#[test]
fn a_domain_ends_though_a_slot_was_leaked() {
    let (domain, drops) = (common::domain(), Arc::new(AtomicUsize::new(0)));
    let reader = domain.register("leaky").unwrap();
    std::mem::forget(reader.slot().unwrap());
    drop(reader);
    let counted = Counted(drops.clone());
    domain.defer(move || drop(counted));
    drop(domain);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

/// A thread that ends releases what it has not leaked. The destructors of its thread-local variables may still read.
#[test]
fn thread_local_destructors_read_in_any_order() {
    /// How many guards of the thread are still open.
    static HELD: AtomicUsize = AtomicUsize::new(2);
    struct AtEnd(&'static RcuCell<String>, Option<Guard<'static>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let domain = Domain::global();
            assert_eq!(self.0.load(&domain.lock()), "after");
            let guard = self.1.take().expect("set below");
            assert_eq!(self.0.load(&guard), "after");
            let token = domain.start();
            drop(guard);
            let last = HELD.fetch_sub(1, Ordering::SeqCst) == 1;
            if last {
                // Returns only once the section has ended.
                domain.synchronize();
            }
            assert_eq!(domain.check(token), last, "the last guard's end");
            let reader = domain.register("in a destructor").unwrap();
            assert_eq!(self.0.load(&reader.lock()), "after");
        }
    }
    thread_local! {
        static FIRST: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
        static SECOND: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
    }
    // One object for each guard, because the older guard of a thread would protect both objects.
    static CELLS: [std::sync::OnceLock<RcuCell<String>>; 2] = [const { std::sync::OnceLock::new() }; 2];
    let cells = [0, 1].map(|n| CELLS[n].get_or_init(|| RcuCell::new("before".to_owned())));
    let [kept, replaced] = [0; 2].map(|_| Arc::new(std::sync::Barrier::new(2)));
    thread::scope(|s| {
        let thread = s.spawn(|| {
            FIRST.with(|k| *k.borrow_mut() = Some(AtEnd(cells[0], Some(Domain::global().lock()))));
            SECOND.with(|k| *k.borrow_mut() = Some(AtEnd(cells[1], Some(Domain::global().lock()))));
            kept.wait();
            replaced.wait();
        });
        kept.wait();
        cells.iter().for_each(|cell| cell.replace("after".to_owned()));
        replaced.wait();
        // A panic in a destructor ends the process.
        thread.join().unwrap();
    });
    Domain::global().synchronize();
}
