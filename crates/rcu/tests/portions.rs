//! What has piled up is freed in portions, and nothing is forgotten, whatever slots pin and callbacks do.
#![forbid(unsafe_code)]

mod common;

use reprieve_rcu::{Domain, RcuCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn count(domain: &Domain, ran: &Arc<AtomicUsize>) {
    let ran = ran.clone();
    domain.defer(move || _ = ran.fetch_add(1, Ordering::SeqCst));
}

#[test]
fn many_pinned_objects_hold_up_nothing_else() {
    for batch in [1, 2] {
        let domain = Domain::new(common::options().batch(batch));
        let cells: Vec<_> = (0..500u64).map(|n| RcuCell::in_domain(&domain, n)).collect();
        let held: Vec<_> = cells.iter().map(RcuCell::hold).collect();
        cells.iter().for_each(|cell| cell.replace(0));
        let ran = Arc::new(AtomicUsize::new(0));
        let guard = domain.lock();
        (0..1_000).for_each(|_| count(&domain, &ran));
        drop(guard);
        domain.barrier();
        assert_eq!(ran.load(Ordering::SeqCst), 1_000, "batch {batch}");
        drop(held);
        domain.reclaim_now();
        assert_eq!(domain.stats().garbage_objects, 0);
    }
}

#[test]
fn a_callback_that_panics_keeps_no_other_portion_from_being_freed() {
    let (domain, ran) = (common::domain(), Arc::new(AtomicUsize::new(0)));
    let guard = domain.lock();
    (0..1_000)
        .for_each(|n| if n % 100 == 0 { domain.defer(|| panic!("once")) } else { count(&domain, &ran) });
    drop(guard);
    assert!(catch_unwind(AssertUnwindSafe(|| domain.barrier())).is_err());
    assert_eq!((ran.load(Ordering::SeqCst), domain.stats().garbage_objects), (990, 0));

    // Neither is the last handle, which a later portion owns.
    let alive = Arc::new(());
    let guard = domain.lock();
    domain.defer(|| panic!("once"));
    (0..100).for_each(|_| count(&domain, &ran));
    let own = (domain.clone(), alive.clone());
    domain.defer(move || drop(own));
    drop(guard);
    assert!(catch_unwind(AssertUnwindSafe(move || drop(domain))).is_err());
    assert_eq!(Arc::strong_count(&alive), 1);
}
