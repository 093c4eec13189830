//! A routing table: many threads look up a route for each packet, and one thread changes routes now and then.
//!
//! Look-ups are restartable sections. A thread that is preempted in one holds up nobody, so that a withdrawn route is
//! freed at once.
//!
//! `cargo run --release -p reprieve-rcu --example routing_table`

use reprieve_rcu::map::FastHash;
use reprieve_rcu::{Domain, RcuMap};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where to send the packets for a network.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Route {
    next_hop: Ipv4Addr,
    interface: u32,
}

/// Routes by network: prefix length and address.
type Routes = RcuMap<(u8, u32), Route, FastHash>;

fn network(address: Ipv4Addr, prefix: u8) -> (u8, u32) {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    (prefix, address.to_bits() & mask)
}

/// The route with the longest prefix that matches.
fn lookup(routes: &Routes, address: Ipv4Addr) -> Option<Route> {
    [32, 24, 16, 8, 0].into_iter().find_map(|prefix| routes.copied(&network(address, prefix)))
}

/// Public for the test that runs this example.
pub fn main() {
    let domain = Domain::default();
    let routes = Routes::with_hasher(&domain, FastHash::default());
    let route = |n: u8| Route { next_hop: Ipv4Addr::new(192, 168, 0, n), interface: u32::from(n) };
    routes.insert(network(Ipv4Addr::UNSPECIFIED, 0), route(1));
    for n in 0..=255 {
        routes.insert(network(Ipv4Addr::new(10, n, 0, 0), 16), route(2));
    }
    let (done, packets) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        for thread in 0..2u32 {
            let (routes, done, packets) = (&routes, &done, &packets);
            s.spawn(move || {
                let mut address = thread;
                while !done.load(Ordering::Relaxed) {
                    address = address.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    lookup(routes, Ipv4Addr::from_bits(address)).expect("there is a default route");
                    packets.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // A more specific route appears and disappears again and again.
        let flapping = network(Ipv4Addr::new(10, 1, 2, 0), 24);
        for _ in 0..1_000 {
            assert_eq!(routes.insert(flapping, route(3)), None);
            assert_eq!(lookup(&routes, Ipv4Addr::new(10, 1, 2, 3)), Some(route(3)));
            assert_eq!(routes.remove(&flapping), Some(route(3)));
            assert_eq!(lookup(&routes, Ipv4Addr::new(10, 1, 2, 3)), Some(route(2)));
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = domain.stats();
    println!("{} routes, {} look-ups", routes.len(), packets.load(Ordering::Relaxed));
    println!(
        "grace periods: median {} ns, garbage at most {} objects",
        stats.grace_periods.quantile_ns(0.5),
        stats.peak_objects
    );
}
