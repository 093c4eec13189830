//! A configuration with a plain part and an owned part, read by many threads and reloaded.

use reprieve_rcu::{field, Domain, Field, RcuCell};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Clone, Copy)]
struct Limits {
    version: u64,
    timeout_ms: u64,
    requests: u32,
}

struct Config {
    limits: Limits,
    upstreams: Vec<String>,
}

const LIMITS: Field<Config, Limits> = field!(Config, limits);

fn load(version: u64) -> Config {
    let limits = Limits { version, timeout_ms: version * 3, requests: version as u32 };
    Config { limits, upstreams: (0..3).map(|n| format!("host-{n}:{version}")).collect() }
}

static CONFIG: RcuCell<Config> = RcuCell::lazy(|| load(0));

fn main() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let mut last = 0;
                while !stop.load(Relaxed) {
                    let limits = CONFIG.get_field(LIMITS);
                    assert!(
                        limits.timeout_ms == 3 * limits.version && limits.requests == limits.version as u32
                    );
                    assert!(limits.version >= last, "an older value after a newer one");
                    last = limits.version;
                    CONFIG.with(|c| {
                        let end = format!(":{}", c.limits.version);
                        assert!(c.upstreams.iter().all(|u| u.ends_with(&end)));
                    });
                }
            });
        }
        (1..=1_000).for_each(|version| CONFIG.replace(load(version)));
        stop.store(true, Relaxed);
    });
    Domain::global().barrier();
    assert_eq!((CONFIG.get_field(LIMITS).version, Domain::global().stats().garbage_objects), (1_000, 0));
}
