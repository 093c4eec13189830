//! Guests on a host with Xen's schedulers.

mod support;

use std::collections::BTreeSet;

use reprieve_study::Observation;

const SCENARIO: &str = "
    run = { repeat = 1, warmup_ms = 50, window_ms = 500 }
    guest = { vcpus = 3, memory_mib = 256 }
    workload = { kind = 'memory', burst = 10 }
    [conditions.baseline]
    [conditions.crowded]
    overcommit = 2
    hogs = 1
    pauses = [{ vcpu = 0, at_ms = 100, for_ms = 60 }]
    spikes = [{ at_ms = 20, for_ms = 50, vcpus = 2 }]
    [host]
";

fn hashes(observations: &[Observation]) -> Vec<String> {
    observations.iter().map(|run| run.provenance.result_hash.clone()).collect()
}

#[test]
fn every_scheduler_runs_a_guest_and_always_the_same_way() {
    let mut all = BTreeSet::new();
    for scheduler in ["credit", "credit2", "rtds"] {
        let text = format!("{SCENARIO}scheduler = '{scheduler}'");
        let (one, four) = (support::run_on(1, &text), support::run_on(4, &text));
        assert!(one.error.is_none() && four.error.is_none(), "{scheduler}");
        assert_eq!(one.observations, four.observations);
        let host_kernel = &one.observations[0].provenance.host_kernel;
        assert_eq!(host_kernel, &format!("model of Xen 4.17 with {}", scheduler.replace("rtds", "RTDS")));
        all.extend(hashes(&one.observations));
    }
    assert_eq!(all.len(), 6, "{all:?}");
}

#[test]
fn each_key_and_the_seed_make_a_difference() {
    let mut all = BTreeSet::new();
    let keys = [
        "",
        "version = '4.5'",
        "slice_ms = 5",
        "ratelimit_us = 0",
        "fixes = ['inactive-debt']",
        "fixes = ['boost-erased']",
    ];
    for key in keys {
        let text = format!("{SCENARIO}scheduler = 'credit'\n[host.xen]\n{key}");
        all.extend(hashes(&support::run(&text)));
        let seeded = text.replace("run = {", "run = { seed = 7,");
        all.extend(hashes(&support::run(&seeded)));
    }
    // Where nobody competes, a key may be of no consequence: the crowded runs alone must all differ.
    assert!(all.len() >= 2 * keys.len(), "{all:?}");
}
