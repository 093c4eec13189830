//! Latencies under Xen's schedulers, and what the stalls among them are attributed to.

mod support;

use proptest::prelude::*;
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Observation, metric};
use support::{metric, run_one};

const MECHANISMS: [&str; 6] = [
    metric::LATE_HOG_BOOSTED,
    metric::LATE_INACTIVE_OVER,
    metric::LATE_BOOST_ERASED,
    metric::LATE_RATE_LIMIT,
    metric::LATE_SLICE_END,
    metric::LATE_OTHER,
];
const ALL_FIXED: &str = "fixes = ['boost-on-migration', 'inactive-debt', 'boost-erased']";

/// A guest pinned to pCPU 1 of two, beside so many spinners.
fn run(workload: &str, spinners: u32, scheduler: &str, xen: &str) -> Observation {
    run_on(2, workload, spinners, scheduler, xen)
}

/// The same on the last one of so many pCPUs.
fn run_on(pcpus: usize, workload: &str, spinners: u32, scheduler: &str, xen: &str) -> Observation {
    let last = pcpus - 1;
    run_one(&format!(
        "run = {{ repeat = 1, warmup_ms = 500, window_ms = 20_000 }}
        observe = {{ sample_hz = 100, sync_every_ms = 0 }}
        guest = {{ vcpus = 1, memory_mib = 128, speed = 8.0 }}
        workload = {{ {workload} }}
        [host]
        pcpus = {pcpus}
        scheduler = '{scheduler}'
        noise_per_s = 0
        [host.xen]
        {xen}
        [conditions.c]
        pcpus = [{last}]
        spinners = {spinners}"
    ))
}

/// As the scenario xen-tail-latency has it.
fn requests(spinners: u32, fixes: &str) -> Observation {
    let workload = "kind = 'requests', rate_per_s = 5_000, gap_spread = 0.03, network_us = 97";
    let xen = format!("version = '4.5'\nratelimit_us = 0\nrace_window_ns = 1_000\n{fixes}");
    run(workload, spinners, "credit", &xen)
}

/// Stalls, and how many of them belong to each mechanism.
fn stalls(of: &Observation) -> (u64, [u64; 6]) {
    (metric(of, metric::LATE) as u64, MECHANISMS.map(|id| metric(of, id) as u64))
}

#[test]
fn each_fix_takes_the_stalls_of_its_mechanism_and_no_others() {
    let (all, by) = stalls(&requests(1, ""));
    assert!(all > 90_000, "nearly every request waits for a slice");
    assert_eq!(by, [all, 0, 0, 0, 0, 0]);
    let (all, by) = stalls(&requests(1, "fixes = ['boost-on-migration']"));
    assert!(by[1] > 1_000 && by[1] + by[2] == all, "{by:?}");
    let (all, by) = stalls(&requests(1, "fixes = ['boost-on-migration', 'inactive-debt']"));
    assert!(all > 0);
    assert_eq!(by, [0, 0, all, 0, 0, 0]);
    assert_eq!(stalls(&requests(1, ALL_FIXED)), (0, [0; 6]));
    assert_eq!(stalls(&requests(0, "")), (0, [0; 6]));
}

#[test]
fn the_first_percentile_to_break_is_the_published_one() {
    let broken = |fixes: &str| {
        let (alone, beside) = (requests(0, ""), requests(1, fixes));
        let ids = [metric::LATENCY_P90, metric::LATENCY_P99, metric::LATENCY_P999, metric::LATENCY_P9999];
        ids.map(|id| metric(&beside, id) > 1.3 * metric(&alone, id))
    };
    assert_eq!(broken(""), [true; 4]);
    assert_eq!(broken("fixes = ['boost-on-migration']"), [false, true, true, true]);
    assert_eq!(broken("fixes = ['boost-on-migration', 'inactive-debt']"), [false, false, true, true]);
    assert_eq!(broken(ALL_FIXED), [false; 4]);
}

/// The negative control: a guest that wants more than its half is made to wait by the scheduler as it is meant to be.
#[test]
fn without_bugs_a_busy_guest_waits_for_the_end_of_slices_and_for_nothing_else() {
    let work = "kind = 'wakeup', sleep_us = 5_000, work_us = 20_000";
    let xen = format!("ratelimit_us = 0\n{ALL_FIXED}");
    let (all, by) = stalls(&run_on(1, work, 1, "credit", &xen));
    assert!(all > 100, "{all}");
    assert_eq!(by, [0, 0, 0, 0, all, 0]);
    assert_eq!(stalls(&run_on(1, work, 0, "credit", &xen)), (0, [0; 6]));
}

#[test]
fn credit2_s_late_wake_is_the_rate_limit_s_and_goes_with_it() {
    let with = |xen: &str, sleep_us: u64| {
        let work = format!("kind = 'wakeup', sleep_us = {sleep_us}, work_us = 200, samples = 1_000");
        run(&work, 1, "credit2", xen)
    };
    let late = with("", 900);
    assert_eq!(stalls(&late), (1_000, [0, 0, 0, 1_000, 0, 0]));
    // The spinner got the pCPU a little after the guest fell asleep, and keeps it for 10 ms.
    let wait_ns = 10_000_000.0 - 900_000.0;
    let p50 = metric(&late, metric::LATENCY_P50);
    assert!(p50 > wait_ns && p50 < wait_ns + 100_000.0, "{p50}");
    // A tick of the guest, every 4 ms, lets the spinner's limit begin again: what falls into that is late, a third at most.
    assert!(stalls(&with("ratelimit_us = 500", 900)).0 < 333);
    assert!(stalls(&with("", 1_100)).0 < 333, "a longer sleep finds the limit over");
    assert_eq!(stalls(&with("ratelimit_us = 0", 900)).0, 0);
    let repaired = metric(&with("fixes = ['late-wake']", 900), metric::LATENCY_MAX);
    assert!(repaired < 1_200_000.0, "{repaired}");
    assert_eq!(stalls(&with("ratelimit_us = 2_000", 1_100)).0, 1_000);
}

#[test]
fn the_window_ends_with_the_last_sample() {
    let of = |samples: u64| run(&format!("kind = 'wakeup', samples = {samples}"), 0, "credit", "");
    let some = of(100);
    assert_eq!(metric(&some, metric::LATENCY_COUNT), 100.0);
    // A look is every 10 ms.
    let spent_ns = some.provenance.window_ns;
    assert!((120 * MILLISECOND_NS..140 * MILLISECOND_NS).contains(&spent_ns), "{spent_ns}");
    assert_eq!(of(0).provenance.window_ns, 20 * SECOND_NS, "or with the window");
}

#[test]
fn a_round_trip_holds_the_network_twice_and_the_service_once() {
    let of = |service_us: u64, network_us: u64| {
        let work = format!(
            "kind = 'requests', gap_us = 1_000, service_us = {service_us}, network_us = {network_us}, requests = 2_000"
        );
        metric(&run(&work, 0, "credit", ""), metric::LATENCY_P50)
    };
    let base = of(100, 1_000);
    let (service, network) = (of(400, 1_000) - base, of(100, 2_000) - base);
    // Percentiles have three digits.
    assert!((service - 300_000.0).abs() < 4_000.0 && (network - 2e6).abs() < 4_000.0, "{service} {network}");
}

#[test]
fn an_open_loop_sends_whatever_is_answered_and_a_closed_one_waits() {
    let sent = |client: &str, service_us: u64| {
        let work = format!("kind = 'requests', network_us = 100, service_us = {service_us}, {client}");
        let run = run(&work, 0, "credit", "");
        (metric(&run, metric::LATENCY_COUNT), metric(&run, metric::LOST))
    };
    assert_eq!(sent("rate_per_s = 1_000", 100), (20_000.0, 0.0));
    let (answered, lost) = sent("rate_per_s = 1_000", 2_000);
    assert!(answered < 10_000.0 && answered + lost > 19_600.0, "{answered} {lost}");
    // 1 ms of gap, 0.2 ms of network, and the guest.
    let (answered, lost) = sent("gap_us = 1_000", 300);
    assert!(answered > 20_000.0 / 1.6 && answered < 20_000.0 / 1.5 && lost == 0.0, "{answered}");
}

#[test]
fn weights_and_caps_reach_the_scheduler() {
    let share = |pcpus: usize, xen: &str| {
        let busy = "kind = 'wakeup', sleep_us = 10, work_us = 100_000";
        let run = run_on(pcpus, busy, 1, "credit", xen);
        (metric(&run, metric::CPU_SHARE), metric(&run, metric::SPINNER_CPU))
    };
    let is_near = |(guest, spinner): (f64, f64), expected: f64| {
        assert!((guest - expected).abs() < 0.02 && (guest + spinner - 1.0).abs() < 0.01, "{guest} {spinner}");
    };
    is_near(share(2, "guest_cap_percent = 25"), 0.25);
    is_near(share(2, "spinner_cap_percent = 25"), 0.75);
    // With an idle pCPU in the pool everybody has credit enough, and weights bind nobody.
    is_near(share(1, "guest_weight = 512"), 2.0 / 3.0);
    is_near(share(1, "spinner_weight = 512"), 1.0 / 3.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Every stall has one mechanism, and what is not attributed is rare: a wait that nothing was recorded of.
    #[test]
    fn every_stall_is_attributed_once(
        scheduler in prop::sample::select(vec!["credit", "credit2", "rtds"]),
        rate_per_s in 100u32..8_000,
        spread in 0u32..10,
        ratelimit_us in prop::sample::select(vec![0, 100, 1_000]),
        spinners in 1u32..4,
        pcpus in 1usize..4,
    ) {
        let workload =
            format!("kind = 'requests', rate_per_s = {rate_per_s}, gap_spread = 0.{spread}, requests = 3_000");
        let run = run_on(pcpus, &workload, spinners, scheduler, &format!("ratelimit_us = {ratelimit_us}"));
        let (all, by) = stalls(&run);
        prop_assert_eq!(by.iter().sum::<u64>(), all);
        prop_assert!(by[5] * 100 <= all, "{:?}", by);
        prop_assert!(metric(&run, metric::LATENCY_P50) <= metric(&run, metric::LATENCY_P999));
    }
}
