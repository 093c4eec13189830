//! Keys, values and closures that panic: an operation is done or is not, and nothing leaks.

mod common;
#[path = "common/fragile.rs"]
mod fragile;

use fragile::{Fragile, Shared};
use reprieve_rcu::map::{Decision, FastHash, MapOptions};
use reprieve_rcu::{Domain, RcuMap};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Map = RcuMap<Fragile, Fragile, FastHash>;
type Contents = BTreeMap<u64, u64>;

/// A full table of one shard: a new key causes it to be rebuilt.
fn full_map(domain: &Domain, shared: &Arc<Shared>) -> Map {
    let map = RcuMap::with_options(domain, MapOptions::new().shards(1), FastHash::default());
    (0..14).for_each(|n| assert!(!map.set(Fragile::new(n, shared), Fragile::new(n, shared))));
    map
}

fn contents(map: &Map) -> Contents {
    map.pin().iter().map(|(key, value)| (key.0, value.0)).collect()
}

/// An operation, given the map and what keys and values share.
type Operation = fn(&Map, &Arc<Shared>);

const OPERATIONS: [(&str, Operation); 22] = [
    ("insert a new key", |m, s| {
        m.insert(Fragile::new(99, s), Fragile::new(99, s));
    }),
    ("insert an old key", |m, s| {
        m.insert(Fragile::new(3, s), Fragile::new(33, s));
    }),
    ("set", |m, s| {
        m.set(Fragile::new(98, s), Fragile::new(98, s));
    }),
    ("remove", |m, s| {
        m.remove(&Fragile::new(4, s));
    }),
    ("remove_entry", |m, s| {
        m.remove_entry(&Fragile::new(5, s));
    }),
    ("remove_if", |m, s| {
        let doomed = |key: &Fragile, value: &Fragile| {
            s.step();
            key.0 == value.0
        };
        m.remove_if(&Fragile::new(6, s), doomed);
    }),
    ("discard", |m, s| {
        m.discard(&Fragile::new(7, s));
    }),
    ("update", |m, s| {
        let change = |value: &Fragile| {
            s.step();
            Fragile::new(value.0 + 100, s)
        };
        m.update(&Fragile::new(8, s), change);
    }),
    ("compute", |m, s| {
        let decide = |_: Option<&Fragile>| {
            s.step();
            Decision::Set(Fragile::new(5, s))
        };
        m.compute(Fragile::new(97, s), decide);
    }),
    ("compute_ref", |m, s| {
        m.compute_ref(&Fragile::new(96, s), |_| Decision::Set(Fragile::new(6, s)));
    }),
    ("entry, absent", |m, s| {
        let make = || {
            s.step();
            Fragile::new(95, s)
        };
        m.entry(Fragile::new(95, s)).or_insert_with(make);
    }),
    ("entry_ref, present", |m, s| {
        let change = |value: &Fragile| {
            s.step();
            Fragile::new(value.0 + 1, s)
        };
        m.entry_ref(&Fragile::new(9, s)).and_modify(change).or_nothing();
    }),
    ("get_or_insert_with, absent", |m, s| {
        let make = || {
            s.step();
            Fragile::new(94, s)
        };
        m.get_or_insert_with(Fragile::new(94, s), make);
    }),
    ("get_or_insert_with, present", |m, s| {
        m.get_or_insert_with(Fragile::new(1, s), || unreachable!());
    }),
    ("get_or_insert_with_ref", |m, s| {
        m.get_or_insert_with_ref(&Fragile::new(93, s), || Fragile::new(93, s));
    }),
    ("pinned insert", |m, s| {
        m.pin().insert(Fragile::new(92, s), Fragile::new(92, s));
    }),
    ("pinned insert, present", |m, s| {
        m.pin().insert(Fragile::new(2, s), Fragile::new(22, s));
    }),
    ("pinned remove", |m, s| {
        m.pin().remove(&Fragile::new(10, s));
    }),
    ("pinned get_or_insert", |m, s| {
        m.pin().get_or_insert(Fragile::new(91, s), Fragile::new(91, s));
    }),
    ("pinned update", |m, s| {
        let change = |value: &Fragile| {
            s.step();
            Fragile::new(value.0 + 1, s)
        };
        m.pin().update(&Fragile::new(11, s), change);
    }),
    ("reserve", |m, _| m.reserve(1_000)),
    ("retain one", |m, s| {
        m.retain(|key, _| {
            s.step();
            key.0 != 12
        });
    }),
];

/// Whatever panics, at whatever step: each operation is done or is not, the lock is free, and nothing leaks.
#[test]
fn an_operation_whose_user_code_panics_is_not_done() {
    let (domain, shared) = (common::domain(), Arc::new(Shared::default()));
    for (name, operation) in OPERATIONS {
        let mut panics = 0;
        for fuse in 1.. {
            let map = full_map(&domain, &shared);
            let before = contents(&map);
            shared.fuse.store(fuse, Ordering::Relaxed);
            let result = catch_unwind(AssertUnwindSafe(|| operation(&map, &shared)));
            let burnt = shared.fuse.swap(0, Ordering::Relaxed) == 0;
            assert_eq!(result.is_err(), burnt, "{name}");
            let after = contents(&map);
            if burnt {
                assert_eq!(after, before, "{name}: a panic at step {fuse} left a change");
                panics += 1;
            }
            domain.barrier();
            assert_eq!(shared.live.load(Ordering::Relaxed), 2 * map.len() as isize, "{name}");
            assert_eq!(domain.stats().garbage_bytes, 0, "{name}");
            assert_eq!(map.len(), after.len(), "{name}");
            map.set(Fragile::new(0, &shared), Fragile::new(0, &shared));
            if !burnt {
                break;
            }
        }
        assert!(panics > 0, "{name} runs none of the user's code");
    }
    domain.barrier();
    assert_eq!(shared.live.load(Ordering::Relaxed), 0);
}

/// `retain` goes from shard to shard. If it panics, later shards are unchanged, and earlier ones stay done.
#[test]
fn a_retain_that_panics_leaves_whole_shards() {
    let (domain, shared) = (common::domain(), Arc::new(Shared::default()));
    let map: Map = RcuMap::with_options(&domain, MapOptions::new().shards(4), FastHash::default());
    (0..100).for_each(|n| assert!(!map.set(Fragile::new(n, &shared), Fragile::new(n, &shared))));
    shared.fuse.store(60, Ordering::Relaxed);
    let keep = |_: &Fragile, _: &Fragile| {
        shared.step();
        false
    };
    assert!(catch_unwind(AssertUnwindSafe(|| map.retain(keep))).is_err());
    assert!((1..100).contains(&map.len()));
    domain.barrier();
    assert_eq!(shared.live.load(Ordering::Relaxed), 2 * map.len() as isize);
    assert_eq!(contents(&map).len(), map.len());
}
