//! What holds in any run, on random small scenarios: that a run does not contradict itself is checked by the simulator
//! after each; here, that what it tells makes sense.

mod support;

use proptest::prelude::*;
use reprieve_study::{Observation, metric, observation};

/// Whether something is there, and its text.
fn maybe(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![1 => Just(String::new()), 1 => text]
}

fn workload() -> impl Strategy<Value = String> {
    let pause_us = prop::sample::select(vec![0, 0, 300, 20_000]);
    let memory =
        (1..40_u32, pause_us, 64..9_000_u32, any::<bool>()).prop_map(|(burst, pause_us, bytes, batched)| {
            format!(
                "{{ kind = 'memory', burst = {burst}, pause_us = {pause_us}, object_bytes = {bytes}, \
             batched = {batched} }}"
            )
        });
    let clone = prop::sample::select(vec!["'ipc', 'net'", "'mnt'", ""])
        .prop_map(|namespaces| format!("{{ kind = 'clone', namespaces = [{namespaces}] }}"));
    let postmark =
        (1..6_u32, 6..400_u32, 6..1_500_u32, 0..200_u32).prop_map(|(processes, files, work, think)| {
            format!(
                "{{ kind = 'postmark', processes = {processes}, files = {files}, transactions = {work}, \
             think_us = {think} }}"
            )
        });
    prop_oneof![memory, clone, postmark]
}

/// What the host does to a guest of that many vCPUs.
fn condition(vcpus: usize) -> impl Strategy<Value = String> {
    let vcpu = 0..vcpus;
    let quota = (vcpu.clone(), 5..=100_u32, 20..120_u32).prop_map(|(vcpu, percent, period)| {
        format!("quota = [{{ vcpu = {vcpu}, percent = {percent}, period_ms = {period} }}]\n")
    });
    let pinned = prop::collection::vec(0..vcpus, 1..3).prop_map(|pcpus| format!("pcpus = {pcpus:?}\n"));
    let pauses = prop::collection::vec((vcpu, 0..300_u32, 1..150_u32), 1..4).prop_map(|pauses| {
        let one = |(vcpu, at, length)| format!("{{ vcpu = {vcpu}, at_ms = {at}, for_ms = {length} }}");
        format!("pauses = [{}]\n", pauses.into_iter().map(one).collect::<Vec<_>>().join(", "))
    });
    let spike = (0..300_u32, 1..150_u32, 1..6_u32).prop_map(|(at, length, vcpus)| {
        format!("spikes = [{{ at_ms = {at}, for_ms = {length}, vcpus = {vcpus} }}]\n")
    });
    let crowd = prop_oneof![
        (10..40_u32).prop_map(|tenths| format!("overcommit = {}\n", f64::from(tenths) / 10.0)),
        (1..3_u32).prop_map(|neighbours| format!("neighbours = {neighbours}\n")),
        (1..3_u32).prop_map(|hogs| format!("hogs = {hogs}\n")),
    ];
    let causes = vec![
        "reader-preemption",
        "lock-holder-preemption",
        "context-switches",
        "cpu-share",
        "memory-pressure",
    ];
    let without =
        prop::sample::subsequence(causes, 1..=5).prop_map(|causes| format!("without = {causes:?}\n"));
    let parts = (maybe(quota), maybe(pinned), maybe(pauses), maybe(spike), maybe(crowd), maybe(without));
    parts.prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].concat())
}

prop_compose! {
    fn scenario()(vcpus in 1..=5_usize)(
        condition in condition(vcpus),
        workload in workload(),
        vcpus in Just(vcpus),
        (hz, host_hz) in (prop::sample::select(vec![100, 250, 1_000]), prop::sample::select(vec![100, 250, 1_000])),
        scheduler in prop::sample::select(vec!["eevdf", "cfs", "credit", "credit2", "rtds"]),
        spinlocks in prop::sample::select(vec!["queued", "paravirtual"]),
        (seed, sync_every_ms) in (0..1_000_u32, prop::sample::select(vec![0, 10])),
        (memory_mib, noise_per_s) in (128..300_u32, prop::sample::select(vec![0, 200])),
        (speed, switch_ns) in (prop::sample::select(vec![0.5, 1.0, 5.0]), prop::sample::select(vec![0, 1_500])),
    ) -> String {
        // Xen's credit schedulers have no quotas.
        let quotas = !scheduler.starts_with("credit");
        let lines = condition.lines().filter(|line| quotas || !line.starts_with("quota"));
        let condition = lines.collect::<Vec<_>>().join("\n");
        format!("
            run = {{ repeat = 1, seed = {seed}, warmup_ms = 50, window_ms = 500 }}
            guest = {{ vcpus = {vcpus}, hz = {hz}, memory_mib = {memory_mib}, spinlocks = '{spinlocks}', speed = {speed:?} }}
            observe = {{ sample_hz = 5_000, sync_every_ms = {sync_every_ms} }}
            limits = {{ simulated_ms = 100_000 }}
            workload = {workload}
            [host]
            hz = {host_hz}
            scheduler = '{scheduler}'
            noise_per_s = {noise_per_s}
            switch_ns = {switch_ns}
            cold_cache_ns = {switch_ns}
            [conditions.c]
            {condition}
        ")
    }
}

/// Everything that a run tells is possible.
fn check(run: &Observation) {
    for (id, value) in &run.metrics {
        assert!(value.is_finite() && *value >= 0.0, "{id} is {value}");
        let known = metric::find(id).unwrap_or_else(|| panic!("{id} is no metric"));
        if matches!(known.unit, metric::Unit::Share | metric::Unit::Index) {
            assert!(*value <= 1.0, "{id} is {value}");
        }
    }
    let window_ns = run.provenance.window_ns;
    for vcpu in &run.provenance.vcpus {
        assert!(vcpu.run_ns + vcpu.delay_ns <= window_ns, "{vcpu:?} in {window_ns}");
    }
    for (name, timeline) in &run.timelines {
        assert!(
            timeline.t_ns.is_sorted() && timeline.t_ns.last().is_none_or(|last| *last <= window_ns),
            "{name}"
        );
        assert!(timeline.values.iter().all(|value| value.is_finite() && *value >= 0.0), "{name}");
    }
    check_grace_periods(run);
    for vcpu in 0..run.provenance.vcpus.len() {
        let away = support::descheduled(run, vcpu);
        assert!(
            away.is_sorted_by(|a, b| a.end_ns <= b.start_ns),
            "vCPU {vcpu} is descheduled twice at a time"
        );
        assert!(away.iter().all(|span| span.end_ns <= window_ns));
    }
}

fn check_grace_periods(run: &Observation) {
    let periods = support::grace_periods(run);
    assert!(periods.is_sorted_by(|a, b| a.end_ns <= b.start_ns), "grace periods overlap");
    assert_eq!(periods.len() as f64, support::metric(run, metric::GP_COUNT));
    assert_eq!(periods.len(), run.timelines[observation::GP_OVER_TIME].values.len());
    assert!(run.holdouts.iter().all(|ended| *ended <= periods.len() as u64));
    for vcpu in 0..run.provenance.vcpus.len() {
        for held in support::slices(run, &format!("holdout vCPU {vcpu}")) {
            let fits = |gp: &&reprieve_study::Span| gp.start_ns == held.start_ns && held.end_ns <= gp.end_ns;
            assert!(periods.iter().any(|gp| fits(&gp)), "{held:?} of vCPU {vcpu} is in no grace period");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_scenario_runs_and_makes_sense(scenario in scenario()) {
        let run = support::run_one(&scenario);
        check(&run);
        // A scheduler of deadlines that has promised more than it has may starve a vCPU for ever, and a lock that is handed over in the
        // order of arrival waits for that vCPU.
        let may_starve = scenario.contains("'rtds'") && scenario.contains("'queued'");
        prop_assert!(
            may_starve || run.provenance.notes.is_empty(),
            "work that never ends: {:?}",
            run.provenance.notes
        );
        if scenario.contains("reader-preemption") {
            for id in [metric::READER_PREEMPTIONS, metric::READER_PREEMPTIONS_LAST, metric::READER_HELD] {
                prop_assert_eq!(support::metric(&run, id), 0.0, "{}", id);
            }
        }
    }
}
