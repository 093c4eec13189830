//! A run is a function of scenario and seed, and its hash tells any other.
//!
//! The recorded hashes show a change of behaviour, wanted or not, and a machine or a compiler that computes something
//! else. After a wanted change run `cargo test -p reprieve-sim --test determinism` and copy the hashes that it prints
//! to [`RECORDED`]; if nothing was meant to change, something is wrong.

mod support;

use std::collections::BTreeSet;

use reprieve_study::Observation;

/// Host threads, quotas, neighbours, pauses and both schedulers take part.
const MEMORY: &str = "
    run = { repeat = 2, warmup_ms = 50, window_ms = 500 }
    guest = { vcpus = 3, memory_mib = 256 }
    workload = { kind = 'memory', burst = 10 }
    [conditions.baseline]
    [conditions.crowded]
    overcommit = 2
    quota = [{ vcpu = 1, percent = 40 }]
    pauses = [{ vcpu = 0, at_ms = 100, for_ms = 60 }]
    [conditions.cfs]
    neighbours = 1
    set = { 'host.scheduler' = 'cfs', 'guest.hz' = 1000 }
";
const POSTMARK: &str = "
    run = { repeat = 1 }
    guest = { vcpus = 2, memory_mib = 256, spinlocks = 'paravirtual' }
    workload = { kind = 'postmark', processes = 3, files = 300, transactions = 1_500 }
    [conditions.crowded]
    overcommit = 2
    spikes = [{ at_ms = 20, for_ms = 50, vcpus = 2 }]
";
/// Requests and wake-ups under Xen's schedulers, with what stalls are attributed to.
const XEN: &str = "
    run = { repeat = 1, warmup_ms = 50, window_ms = 1_000 }
    observe = { sample_hz = 100, sync_every_ms = 0 }
    guest = { vcpus = 1, memory_mib = 128, speed = 8.0 }
    workload = { kind = 'requests', rate_per_s = 3_000, gap_spread = 0.1 }
    [host]
    pcpus = 2
    scheduler = 'credit'
    [host.xen]
    version = '4.5'
    ratelimit_us = 0
    race_window_ns = 10_000
    [conditions.alone]
    [conditions.stock]
    pcpus = [1]
    spinners = 1
    [conditions.bug-1-fixed]
    pcpus = [1]
    spinners = 2
    set = { 'host.xen.fixes' = ['boost-on-migration'], 'host.xen.trace' = true }
    [conditions.credit2]
    pcpus = [1]
    spinners = 1
    set = { 'host.scheduler' = 'credit2', 'host.xen.ratelimit_us' = 1_000 }
    [conditions.rtds]
    pcpus = [1]
    spinners = 1
    set = { 'host.scheduler' = 'rtds' }
";
/// Hashes of their runs, in the order of the plan.
const RECORDED: [(&str, &[&str]); 3] = [
    (
        MEMORY,
        &[
            "a0660b8f26d20bf9",
            "39cce9f819b094ef",
            "919c83323096b349",
            "78fa2c1fd7f5abb9",
            "b92a4bd90bfb2468",
            "e5e5c2e4e16bb111",
        ],
    ),
    (POSTMARK, &["81c80dcd97fcac8c"]),
    (
        XEN,
        &["6c928820f6c8e811", "60736e07c59deff6", "0295b0166ce33a6f", "3f1d0d96f9d8c140", "06305b5f25f6845b"],
    ),
];

fn hashes(observations: &[Observation]) -> Vec<&str> {
    observations.iter().map(|run| run.provenance.result_hash.as_str()).collect()
}

#[test]
fn one_thread_or_four_make_no_difference() {
    for scenario in [MEMORY, POSTMARK, XEN] {
        let (one, again, four) =
            (support::run_on(1, scenario), support::run_on(1, scenario), support::run_on(4, scenario));
        assert!(one.error.is_none() && again.error.is_none() && four.error.is_none());
        assert_eq!(one.observations, again.observations);
        assert_eq!(one.observations, four.observations);
    }
}

#[test]
fn another_seed_condition_or_repetition_is_another_run() {
    let mut all = BTreeSet::new();
    for seed in 0..4 {
        let runs = support::run(&MEMORY.replace("run = {", &format!("run = {{ seed = {seed},")));
        all.extend(hashes(&runs).into_iter().map(String::from));
    }
    assert_eq!(all.len(), 4 * 3 * 2, "{all:?}");
}

#[test]
fn hashes_are_those_that_were_recorded() {
    let observed = RECORDED.map(|(scenario, _)| support::run(scenario));
    let observed = observed.each_ref().map(|runs| hashes(runs));
    let recorded = RECORDED.map(|(_, hashes)| hashes.to_vec());
    assert_eq!(observed, recorded, "see the top of this file");
}
