//! How cells begin: when, and by which call, the first value of a static cell is made.
#![forbid(unsafe_code)]

use reprieve_rcu::{Domain, RcuCell, field};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

#[test]
fn a_static_cell_begins_once_whichever_call_comes_first() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static CELL: RcuCell<(u64, u8)> = RcuCell::lazy(|| {
        MADE.fetch_add(1, Ordering::SeqCst);
        // Long enough for the other threads to arrive.
        thread::sleep(std::time::Duration::from_millis(20));
        (7, 1)
    });
    let calls: [fn() -> u64; 7] = [
        || CELL.get().0,
        || CELL.get_cloned().0,
        || CELL.hold().0,
        || CELL.with(|v| v.0),
        || CELL.load(&Domain::global().lock()).0,
        || CELL.get_field(field!((u64, u8), 0)),
        || {
            CELL.update(|v| *v);
            CELL.get().0
        },
    ];
    let start = Barrier::new(calls.len());
    thread::scope(|s| {
        let start = &start;
        let call = |call: fn() -> u64| {
            s.spawn(move || {
                start.wait();
                call()
            })
        };
        calls.map(call).into_iter().for_each(|t| assert_eq!(t.join().unwrap(), 7));
    });
    assert_eq!(MADE.load(Ordering::SeqCst), 1);
}

#[test]
fn a_cell_whose_first_value_panicked_begins_again() {
    static FAILS: AtomicBool = AtomicBool::new(true);
    let cell = RcuCell::<u64>::lazy(|| {
        assert!(!FAILS.swap(false, Ordering::SeqCst), "expected");
        9
    });
    assert!(catch_unwind(AssertUnwindSafe(|| cell.get())).is_err());
    assert_eq!(cell.get(), 9);
}

#[test]
fn a_cell_that_was_never_used_makes_no_value() {
    drop(RcuCell::<u64>::lazy(|| unreachable!("not used")));
    let never = RcuCell::<u64>::lazy(|| panic!("expected"));
    assert!(catch_unwind(AssertUnwindSafe(|| never.get())).is_err());
}

/// A copy of nothing still needs a value, which only `first` can make.
#[test]
fn a_value_without_size_is_made_before_it_is_copied() {
    #[derive(Clone, Copy)]
    struct Proof;
    let never = RcuCell::<(Proof, u8)>::lazy(|| panic!("expected"));
    assert!(catch_unwind(AssertUnwindSafe(|| never.get_field(field!((Proof, u8), 0)))).is_err());
    let never = RcuCell::<Proof>::lazy(|| panic!("expected"));
    assert!(catch_unwind(AssertUnwindSafe(|| never.get())).is_err());
}

#[test]
fn a_cell_begins_also_by_being_written() {
    static NAME: RcuCell<Option<String>> = RcuCell::none();
    NAME.replace(Some("one".to_owned()));
    assert_eq!(NAME.get_cloned().as_deref(), Some("one"));
    let other: RcuCell<Option<String>> = RcuCell::none();
    // This does not count as the cell's value, because the cell has had none yet.
    assert_eq!(other.compare_exchange(&None, Some("x".to_owned())), Err(Some("x".to_owned())));
    assert_eq!(other.get_cloned(), None);
}
