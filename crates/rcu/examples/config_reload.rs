//! Configuration that is reloaded while it is used: `RcuCell`.
//!
//! `cargo run -p reprieve-rcu --example config_reload`

use reprieve_rcu::{Domain, RcuCell};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
struct Config {
    timeout_ms: u64,
    upstreams: Vec<String>,
}

/// Public for the test that runs it.
pub fn main() {
    let domain = Domain::default();
    let config = RcuCell::in_domain(&domain, Config { timeout_ms: 100, upstreams: vec!["a:80".into()] });
    // What is read per request, and small: a copy of it costs least.
    let timeout_ms = RcuCell::in_domain(&domain, 100u64);
    let stop = AtomicBool::new(false);

    let requests = std::thread::scope(|s| {
        let workers = [(); 2].map(|()| {
            s.spawn(|| {
                let mut requests = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    // Restartable: a worker that is preempted here delays no reload.
                    assert!(timeout_ms.get() >= 100);
                    // Owned parts must not be copied out: lock, and borrow.
                    let guard = domain.lock();
                    let config = config.load(&guard);
                    assert!(config.upstreams.len() as u64 == config.timeout_ms / 100);
                    requests += 1;
                }
                requests
            })
        });
        for generation in 2..=50 {
            config.update(|old| {
                let mut upstreams = old.upstreams.clone();
                upstreams.push(format!("host-{generation}:80"));
                Config { timeout_ms: generation * 100, upstreams }
            });
            timeout_ms.replace(generation * 100);
        }
        stop.store(true, Ordering::Relaxed);
        workers.map(|w| w.join().unwrap()).iter().sum::<u64>()
    });
    domain.barrier();
    assert_eq!((timeout_ms.get(), domain.stats().garbage_objects), (5_000, 0));
    println!("98 reloads under {requests} requests; nothing is left: {:?}", domain.stats().grace_periods);
}
