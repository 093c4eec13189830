//! A routing table: readers look up, a writer inserts, changes and removes.

use reprieve_rcu::map::FastHash;
use reprieve_rcu::{Domain, RcuMap};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, PartialEq)]
struct NextHop {
    gateway: Ipv4Addr,
    port: u16,
    metric: u32,
}

const PREFIXES: u32 = 10_000;

fn hop(prefix: u32, metric: u32) -> NextHop {
    NextHop { gateway: Ipv4Addr::from(prefix ^ metric), port: (prefix >> 16) as u16, metric }
}

fn random(x: &mut u32) -> u32 {
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    *x % PREFIXES << 8
}

fn main() {
    let domain = Domain::default();
    let routes: RcuMap<u32, NextHop, FastHash> = RcuMap::with_hasher(&domain, FastHash::default());
    (0..PREFIXES).for_each(|n| assert!(!routes.set(n << 8, hop(n << 8, 0))));
    let stop = AtomicBool::new(false);
    let mut expected = i64::from(PREFIXES);
    std::thread::scope(|s| {
        for seed in 1..=3 {
            let (routes, stop) = (&routes, &stop);
            s.spawn(move || {
                let mut x = seed;
                while !stop.load(Relaxed) {
                    let prefix = random(&mut x);
                    if let Some(found) = routes.copied(&prefix) {
                        assert_eq!(found, hop(prefix, found.metric));
                    }
                }
            });
        }
        let mut x = 99;
        for n in 0..100_000u32 {
            let prefix = random(&mut x);
            match n % 4 {
                0 => expected -= i64::from(routes.discard(&prefix)),
                1 => expected += i64::from(!routes.set(prefix, hop(prefix, n))),
                _ => drop(routes.update(&prefix, |old| hop(prefix, old.metric + 1))),
            }
        }
        stop.store(true, Relaxed);
    });
    domain.barrier();
    assert_eq!((routes.len() as i64, domain.stats().garbage_objects), (expected, 0));
}
