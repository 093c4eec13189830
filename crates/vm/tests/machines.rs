//! Guests of other shapes than the usual one: a tree of several rcu_nodes, memory on both sides of the hole.

mod support;

use std::time::Instant;

use support::{Bench, MIB, PATIENCE, STOP_LIMIT, compare};

#[test]
fn a_tree_with_two_leaves() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(4, 512, "rcutree.rcu_fanout_leaf=2");
    let (_, layout) = bench.layout(&booted).unwrap_or_else(|error| panic!("{error}"));
    let first_cpus: Vec<u32> = layout.leaves.iter().map(|leaf| leaf.first_cpu).collect();
    assert_eq!((first_cpus, layout.cpus.len()), (vec![0, 2], 4));

    let reader = bench.reader(&booted);
    booted.link.start("memory").unwrap();
    let (start, mut held_up) = (Instant::now(), 0);
    while held_up != 0b1111 {
        let holdouts = reader.gp().holdouts;
        assert_eq!(holdouts & !0b1111, 0, "{holdouts:#b}");
        held_up |= holdouts;
        assert!(start.elapsed() < PATIENCE, "only {held_up:#b} ever held up a grace period");
    }
    booted.link.stop(STOP_LIMIT).unwrap();
    compare::drained_backlog(&reader).unwrap();
}

/// The `pc` machine puts memory from 3 GiB on above 4 GiB.
#[test]
fn memory_on_both_sides_of_the_hole() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 4096, "");
    let (ram, layout) = bench.layout(&booted).unwrap_or_else(|error| panic!("{error}"));
    let managed: u64 = layout.zones.iter().map(|zone| ram.get(zone.managed_pages)).sum();
    let normal = layout.zones.iter().find(|zone| zone.name == "Normal").expect("memory above 4 GiB");
    assert!(ram.get(normal.managed_pages) * 4096 > 512 * MIB);
    assert!((3584 * MIB..4096 * MIB).contains(&(managed * 4096)), "{managed} pages");
    let reader = bench.reader(&booted);
    compare::buddy(&mut booted, &reader).unwrap();
    compare::unusable_index(&mut booted, &reader).unwrap();
    compare::footprint(&mut booted, &reader).unwrap();
}
