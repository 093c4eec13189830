//! What the tests share; no test uses all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts its drops.
pub struct Counted(pub Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A counter, and a raw object that counts its drop there.
pub fn counted(drops: &Arc<AtomicUsize>) -> *mut Counted {
    Box::into_raw(Box::new(Counted(drops.clone())))
}

/// Runs `f` on a thread that stays in a section of `domain` for as long.
pub fn with_reader_inside(domain: &reprieve_rcu::Domain, name: &str, f: impl FnOnce()) {
    let (entered, leave) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            let reader = domain.register(name).unwrap();
            let _guard = reader.lock();
            entered.wait();
            leave.wait();
        });
        entered.wait();
        // The reader leaves also when `f` panics.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        leave.wait();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}
