//! What comes back when less CPU time is made up for: measured, so it holds for whatever takes the time away.

mod support;

use reprieve_study::Observation;
use reprieve_study::metric::THROUGHPUT;

/// Throughput under three conditions: undisturbed, disturbed in that way, and the same made up for.
fn throughputs(head: &str, disturbance: &str) -> [f64; 3] {
    let runs = support::run(&format!(
        "
        run = {{ repeat = 1, warmup_ms = 50, window_ms = 1000 }}
        {head}
        [host]
        noise_per_s = 0
        switch_ns = 0
        cold_cache_ns = 0
        [conditions.alone]
        [conditions.disturbed]
        {disturbance}
        [conditions.made-up]
        {disturbance}
        without = ['cpu-share']
        "
    ));
    ["alone", "disturbed", "made-up"].map(|name| {
        let run = runs.iter().find(|run: &&Observation| run.condition == name).unwrap();
        support::metric(run, THROUGHPUT)
    })
}

/// A guest of one vCPU that is always busy: whatever is taken of its CPU time comes back as speed.
const BUSY: &str = "
    guest = { vcpus = 1, memory_mib = 512, rcu.jiffies_till_first_fqs = 1 }
    workload = { kind = 'memory', burst = 10 }
    observe = { sync_every_ms = 0 }
";

#[test]
fn a_busy_guest_gets_back_what_a_quota_a_pause_or_a_spike_takes() {
    for disturbance in [
        "quota = [{ vcpu = 0, percent = 50, period_ms = 20 }]",
        "pauses = [{ vcpu = 0, at_ms = 200, for_ms = 400 }]",
        "spikes = [{ at_ms = 100, for_ms = 600, vcpus = 1 }]",
        "overcommit = 2",
    ] {
        let [alone, disturbed, made_up] = throughputs(BUSY, disturbance);
        assert!(disturbed < 0.8 * alone, "{disturbance}: {disturbed} of {alone}");
        // Ticks and their like come with time, so a faster guest has less of them to do.
        assert!((made_up / alone - 1.0).abs() < 0.05, "{disturbance}: {made_up} of {alone}");
    }
}

#[test]
fn a_guest_that_hardly_wants_its_pcpu_has_little_to_be_made_up_for() {
    let idle = "
        guest = { vcpus = 1, memory_mib = 512 }
        workload = { kind = 'memory', burst = 1, pause_us = 20000 }
        observe = { sync_every_ms = 0 }
    ";
    let [alone, disturbed, made_up] = throughputs(idle, "quota = [{ vcpu = 0, percent = 50 }]");
    assert_eq!((disturbed, made_up), (alone, alone), "it needs less than its quota");
}

#[test]
fn user_time_that_the_scenario_states_is_made_up_for_too() {
    let thinks = "
        guest = { vcpus = 1, memory_mib = 512, speed = 2.0 }
        workload = { kind = 'postmark', processes = 1, files = 50, transactions = 500, think_us = 2000 }
        observe = { sync_every_ms = 0 }
    ";
    let [alone, disturbed, made_up] =
        throughputs(thinks, "quota = [{ vcpu = 0, percent = 50, period_ms = 20 }]");
    assert!(disturbed < 0.6 * alone, "{disturbed} of {alone}");
    assert!((made_up / alone - 1.0).abs() < 0.05, "{made_up} of {alone}");
}
