//! Grace periods by hand: a writer that never waits, and frees once its tokens have passed.
//!
//! `cargo run -p reprieve-rcu --example tokens`

use reprieve_rcu::{Domain, Token};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A buffer that readers read, and the writer uses again.
type Buffer = [u64; 64];

/// Public for the test that runs this example.
pub fn main() {
    let domain = Domain::default();
    let fresh = |n: u64| Box::into_raw(Box::new([n; 64] as Buffer));
    let (current, stop) = (AtomicPtr::new(fresh(0)), AtomicBool::new(false));
    let mut waiting: VecDeque<(Token, *mut Buffer)> = VecDeque::new();
    let (mut made, mut used_again) = (1, 0);

    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _guard = domain.lock();
                // SAFETY: the writer touches a buffer only when the token taken after its unlink has passed.
                let seen: &Buffer = unsafe { &*current.load(Ordering::Acquire) };
                assert!(seen.iter().all(|&v| v == seen[0]), "never half written");
            }
        });
        for n in 1..=1_000 {
            // A buffer that all readers have left, or a new one. `check` never blocks.
            let buffer = match waiting.front() {
                Some(&(token, buffer)) if domain.check(token) => {
                    waiting.pop_front();
                    used_again += 1;
                    // SAFETY: its grace period is over: nobody reads it.
                    unsafe { *buffer = [n; 64] };
                    buffer
                }
                _ => {
                    made += 1;
                    fresh(n)
                }
            };
            let old = current.swap(buffer, Ordering::AcqRel);
            // The token comes after the unlink.
            waiting.push_back((domain.start(), old));
        }
        stop.store(true, Ordering::Relaxed);
    });

    waiting.push_back((domain.start(), current.into_inner()));
    domain.synchronize();
    for (token, buffer) in waiting {
        assert!(domain.check(token));
        // SAFETY: from a box; nobody reads any more.
        drop(unsafe { Box::from_raw(buffer) });
    }
    assert_eq!(made + used_again, 1_001);
    println!("1,000 buffers published: {made} made, {used_again} used again");
}
