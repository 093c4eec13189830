//! Threads that come and go, and that end in a section. For leaks see leaks.rs.

mod common;

use reprieve_rcu::map::{Iter, Keys, Pinned, Values};
use reprieve_rcu::{Domain, Entered, Guard, HazardGuard, Online, RcuCell, Reader, Slot};
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A type that is neither `Send` nor `Sync`. For any other type, more than one of these implementations fits, and a
/// call that does not choose one of them does not compile.
trait Stays<Otherwise> {
    fn on_its_thread() {}
}
enum Sent {}
enum Shared {}
impl<T> Stays<()> for T {}
impl<T: Send> Stays<Sent> for T {}
impl<T: Sync> Stays<Shared> for T {}

#[test]
fn readers_and_their_sections_stay_on_their_threads() {
    Reader::on_its_thread();
    Guard::on_its_thread();
    Entered::on_its_thread();
    Online::on_its_thread();
    Slot::on_its_thread();
    HazardGuard::<u8>::on_its_thread();
    Pinned::<u8, u8>::on_its_thread();
    Iter::<u8, u8>::on_its_thread();
    Keys::<u8, u8>::on_its_thread();
    Values::<u8, u8>::on_its_thread();
}

#[test]
fn a_reader_dropped_with_a_leaked_guard_goes_offline() {
    let domain = common::domain();
    let reader = domain.register("leaky").unwrap();
    std::mem::forget(reader.lock());
    drop(reader);
    assert!(domain.check(domain.start()));
}

/// A guard in a thread-local variable lives until that variable is destroyed, and protects until then.
#[test]
fn a_guard_in_a_thread_local_protects_to_its_end() {
    static IN_DESTRUCTOR: AtomicBool = AtomicBool::new(false);
    struct AtEnd(Option<Guard<'static>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let token = Domain::global().start();
            assert!(!Domain::global().check(token), "still in the section");
            drop(self.0.take());
            // Returns only if the guard's section has ended.
            Domain::global().synchronize();
            assert!(Domain::global().check(token));
            // The thread can still read.
            drop(Domain::global().lock());
            IN_DESTRUCTOR.store(true, Ordering::SeqCst);
        }
    }
    thread_local!(static KEPT: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) });
    std::thread::spawn(|| KEPT.with(|k| k.borrow_mut().0 = Some(Domain::global().lock()))).join().unwrap();
    assert!(IN_DESTRUCTOR.load(Ordering::SeqCst));
}

/// The same for a pthread key that is younger than the crate's own. Its destructor then runs later in the same round,
/// as that of `std` does on musl.
#[cfg(unix)]
#[test]
fn a_guard_in_a_pthread_key_protects_to_its_end() {
    use std::ffi::c_void;
    type Kept = Guard<'static>;
    static WAS_PROTECTED: AtomicBool = AtomicBool::new(false);
    extern "C" fn destructor(guard: *mut c_void) {
        // SAFETY: the value set below, which is destroyed once.
        let guard = unsafe { Box::from_raw(guard.cast::<Kept>()) };
        let token = Domain::global().start();
        WAS_PROTECTED.store(!Domain::global().check(token), Ordering::SeqCst);
        drop(guard);
    }
    drop(Domain::global().lock());
    let mut key = 0;
    // SAFETY: `key` is valid for the call, and the destructor is part of the program.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) }, 0);
    std::thread::spawn(move || {
        let guard: Box<Kept> = Box::new(Domain::global().lock());
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, Box::into_raw(guard).cast()) };
    })
    .join()
    .unwrap();
    assert!(WAS_PROTECTED.load(Ordering::SeqCst));
}

/// A thread enters its first section in the destructor of a key, when `std` has forgotten the thread; and in every
/// round of such destructors, before and after the library's own.
#[cfg(unix)]
#[test]
fn sections_may_begin_in_every_round_of_a_pthread_key_s_destructors() {
    use std::ffi::c_void;
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    static ROUNDS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn destructor(value: *mut c_void) {
        drop(common::domain().lock());
        drop(Domain::global().lock());
        ROUNDS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the key exists. After its fourth round glibc calls it no more.
        unsafe { libc::pthread_setspecific(*KEY.get().unwrap(), value) };
    }
    let mut key = 0;
    // SAFETY: `key` is valid for the call, and the destructor is part of the program.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) }, 0);
    KEY.set(key).unwrap();
    // SAFETY: the key exists; its value is not null.
    std::thread::spawn(move || unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) })
        .join()
        .unwrap();
    assert!(ROUNDS.load(Ordering::SeqCst) >= 4);
}

#[test]
fn registration_is_limited() {
    let domain = Domain::new(common::options().limit_readers(1));
    let only = domain.register("only").unwrap();
    assert_eq!(domain.register("second").err().map(|e| e.limit), Some(1));
    drop(only);
    assert!(domain.register("second").is_ok());
}

#[test]
fn many_short_lived_domains_on_one_thread() {
    for i in 0..200u64 {
        let domain = common::domain();
        let cell = RcuCell::in_domain(&domain, i);
        assert_eq!(*cell.load(&domain.lock()), i);
    }
}

#[test]
fn cells_are_read_and_replaced_by_all() {
    let domain = common::domain();
    // The two halves always agree.
    let (cell, stop) = (RcuCell::in_domain(&domain, [0u64; 8]), AtomicBool::new(false));
    std::thread::scope(|s| {
        let writers =
            [(); 2].map(|()| s.spawn(|| (0..1_000).for_each(|_| cell.update(|old| [old[0] + 1; 8]))));
        let stop = &stop;
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seen = cell.get();
                    assert!(seen.iter().all(|&v| v == seen[0]), "{seen:?}");
                    let guard = domain.lock();
                    let held = cell.load(&guard);
                    assert!(held.iter().all(|&v| v == held[0]), "{held:?}");
                }
            });
        }
        writers.into_iter().for_each(|w| w.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(cell.get(), [2_000; 8]);
    assert_eq!(format!("{:?}", RcuCell::in_domain(&domain, 5)), "RcuCell(5)");
}

#[test]
#[should_panic(expected = "not one of the cell's domain")]
fn a_section_of_another_domain_does_not_open_a_cell() {
    let (one, other) = (common::domain(), common::domain());
    let cell = RcuCell::in_domain(&one, 1);
    let guard = other.lock();
    cell.load(&guard);
}
