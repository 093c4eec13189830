//! Remedies: what they do to grace periods, what they may take, and that each setting is read.

mod support;

use reprieve_study::Observation;
use reprieve_study::metric::{
    BOOSTED_CPU, BOOSTS, GP_MEAN, GP_P99, NEIGHBOUR_CPU, READER_HELD, READER_PREEMPTIONS, THROUGHPUT,
};

const HEAD: &str = "
    run = { repeat = 1, warmup_ms = 100, window_ms = 2_000 }
    guest = { vcpus = 2, memory_mib = 512, spinlocks = 'paravirtual' }
    workload = { kind = 'memory', burst = 10 }
";

/// The run without remedy, and the one with boosts.
fn runs(scheduler: &str, disturbance: &str, more: &str) -> [Observation; 2] {
    let text = format!(
        "
        {HEAD}
        [host]
        scheduler = '{scheduler}'
        {more}
        [conditions.nothing]
        {disturbance}
        [conditions.boost]
        {disturbance}
        remedies = ['boost']
        "
    );
    let runs = support::run(&text);
    ["nothing", "boost"].map(|name| runs.iter().find(|run| run.condition == name).unwrap().clone())
}

const QUOTA: &str = "quota = [{ vcpu = 1, percent = 20, period_ms = 100 }]";

#[test]
fn boosts_shorten_grace_periods_and_a_quota_is_kept() {
    for scheduler in ["eevdf", "cfs"] {
        let [nothing, boost] = runs(scheduler, QUOTA, "");
        for (id, most) in [(GP_MEAN, 0.7), (GP_P99, 0.6)] {
            let ratio = support::metric(&boost, id) / support::metric(&nothing, id);
            assert!(ratio < most, "{scheduler}, {id}: {ratio}");
        }
        // The debt that the limit allows, and a tick, are all that can be beyond it at the end.
        let given = boost.provenance.vcpus[1].run_ns;
        assert!(given <= 2_000_000_000 / 5 + 14_500_000, "{scheduler}: {given}");
        let throughput = |run| support::metric(run, THROUGHPUT);
        let ratio = throughput(&boost) / throughput(&nothing);
        // Switches, cold caches, and ticks that are taken as soon as the vCPU is on.
        assert!(ratio > 0.93, "{scheduler}: {ratio}");
        assert!(support::metric(&boost, BOOSTS) > 10.0 && support::metric(&boost, BOOSTED_CPU) < 0.2);
        assert!(!nothing.metrics.contains_key(BOOSTS), "nobody was boosted");
    }
}

#[test]
fn neighbours_lose_little() {
    let [nothing, boost] = runs("cfs", "overcommit = 2", "");
    assert!(support::metric(&boost, GP_MEAN) < 0.9 * support::metric(&nothing, GP_MEAN));
    let neighbours = |run| support::metric(run, NEIGHBOUR_CPU);
    assert!(neighbours(&boost) > 0.95 * neighbours(&nothing), "{}", neighbours(&boost));
}

#[test]
fn under_the_oracle_no_grace_period_waits_for_a_descheduled_vcpu_and_the_guest_gets_no_more() {
    let text = format!(
        "
        {HEAD}
        host.scheduler = 'cfs'
        [conditions.nothing]
        overcommit = 2
        [conditions.oracle]
        overcommit = 2
        remedies = ['oracle']
        "
    );
    let runs = support::run(&text);
    let of = |name: &str, id| support::metric(runs.iter().find(|run| run.condition == name).unwrap(), id);
    for waits in [READER_PREEMPTIONS, READER_HELD] {
        assert!(of("nothing", waits) > 0.0, "{waits}");
        assert_eq!(of("oracle", waits), 0.0, "{waits}");
    }
    // Two ticks are what it takes without anybody else.
    assert!(of("oracle", GP_P99) < 10e6 && of("nothing", GP_P99) > 20e6, "{}", of("oracle", GP_P99));
    let neighbours = of("oracle", NEIGHBOUR_CPU) / of("nothing", NEIGHBOUR_CPU);
    assert!((0.93..1.07).contains(&neighbours), "the time is lent: {neighbours}");
}

#[test]
fn a_stopped_vcpu_cannot_be_boosted() {
    let [nothing, boost] =
        runs("cfs", "pauses = [{ vcpu = 1, at_ms = 500, for_ms = 300 }]", "noise_per_s = 0");
    assert_eq!(support::metric(&boost, BOOSTS), 0.0);
    assert_eq!(support::metric(&boost, GP_P99), support::metric(&nothing, GP_P99));
}

#[test]
fn each_setting_is_read() {
    let hash = |more: &str| runs("cfs", QUOTA, more)[1].provenance.result_hash.clone();
    let usual = hash("");
    for setting in [
        "threshold_us = 9_000",
        "cap_us = 200",
        "cool_down_us = 9_000",
        "debt_us = 1_000",
        "share_percent = 1",
        "look_us = 370",
    ] {
        assert_ne!(hash(&format!("boost = {{ {setting} }}")), usual, "{setting}");
    }
}

#[test]
fn remedies_without_anything_to_work_on_are_refused() {
    let refusal = |more: &str| {
        let text = format!("name = 't'\ntitle = 't'\n{HEAD}\n{more}");
        reprieve_study::overrides::read(&text, None, &[]).map(|_| ()).unwrap_err().to_string()
    };
    let boost = "conditions.c = { remedies = ['boost'] }";
    assert!(
        refusal(&format!("host.scheduler = 'credit'\n{boost}")).contains("only Linux's schedulers can boost")
    );
    let twice = "conditions.c = { remedies = ['boost', 'boost'] }";
    assert!(refusal(twice).starts_with("conditions.c.remedies: "), "{}", refusal(twice));
    let set = "conditions.c = { set = { host.boost.cap_us = 100 } }";
    assert!(refusal(set).contains("no condition has the remedy boost"), "{}", refusal(set));
}
