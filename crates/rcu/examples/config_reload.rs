//! Configuration that is reloaded while it is used: `RcuCell`.
//!
//! `cargo run -p reprieve-rcu --example config_reload`

use reprieve_rcu::{Domain, Field, RcuCell, field};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
struct Config {
    timeout_ms: u64,
    upstreams: Vec<String>,
}

const TIMEOUT_MS: Field<Config, u64> = field!(Config, timeout_ms);
const WORKERS: usize = 2;

/// Public for the test that runs this example.
pub fn main() {
    let domain = Domain::default();
    let config = RcuCell::in_domain(&domain, Config { timeout_ms: 100, upstreams: vec!["a:80".into()] });
    let (stop, at_work) = (AtomicBool::new(false), Barrier::new(WORKERS + 1));

    let requests = std::thread::scope(|s| {
        let workers = [(); WORKERS].map(|()| {
            s.spawn(|| {
                let mut requests = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    // A copy of a part. A worker that is preempted here delays no reload.
                    assert!(config.get_field(TIMEOUT_MS) >= 100);
                    // The whole, in place. What a worker uses here waits to be freed, and nothing else does.
                    config.with(|c| assert!(c.upstreams.len() as u64 == c.timeout_ms / 100));
                    requests += 1;
                    if requests == 1 {
                        at_work.wait();
                    }
                }
                requests
            })
        });
        at_work.wait();
        for generation in 2..=50 {
            config.update(|old| {
                let mut upstreams = old.upstreams.clone();
                upstreams.push(format!("host-{generation}:80"));
                Config { timeout_ms: generation * 100, upstreams }
            });
        }
        stop.store(true, Ordering::Relaxed);
        workers.map(|w| w.join().unwrap()).iter().sum::<u64>()
    });
    domain.barrier();
    assert!(requests >= WORKERS as u64);
    assert_eq!((config.get_field(TIMEOUT_MS), domain.stats().garbage_objects), (5_000, 0));
    println!("49 reloads under {requests} requests; nothing is left: {:?}", domain.stats().grace_periods);
}
