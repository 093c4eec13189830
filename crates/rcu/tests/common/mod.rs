//! What the tests share. No test uses all of it.
#![allow(dead_code)]

use reprieve_rcu::{Domain, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options with which a call that retires waits for membarrier, however long that takes. When a test's objects are
/// freed then does not depend on how busy the machine is.
pub fn options() -> Options {
    Options::new().call_limit_ns(u64::MAX)
}

/// A domain with the options of `options`.
pub fn domain() -> Domain {
    Domain::new(options())
}

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

/// Runs `f` while another thread stays in a section of `domain`.
pub fn with_reader_inside(domain: &Domain, name: &str, f: impl FnOnce()) {
    let (entered, leave) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            let reader = domain.register(name).unwrap();
            let _guard = reader.lock();
            entered.wait();
            leave.wait();
        });
        entered.wait();
        // The reader leaves also if `f` panics.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        leave.wait();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}
