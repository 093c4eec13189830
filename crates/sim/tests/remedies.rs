//! Remedies: what they do to grace periods, what they may take, and that each setting is read.

mod support;

use reprieve_study::metric::{
    BOOST_CPU, BOOSTED_CPU, BOOSTS, GANGS, GP_MEAN, GP_P99, GRANTED_CPU, GRANTS, LEFT_ALONE, MARKS_CPU,
    NEIGHBOUR_CPU, READER_HELD, READER_PREEMPTIONS, THROUGHPUT,
};
use reprieve_study::{Observation, Span};

const HEAD: &str = "
    run = { repeat = 1, warmup_ms = 100, window_ms = 2_000 }
    guest = { vcpus = 2, memory_mib = 512, spinlocks = 'paravirtual' }
    workload = { kind = 'memory', burst = 10 }
";

/// The run without remedy, and the one with boosts.
fn runs(scheduler: &str, disturbance: &str, more: &str) -> [Observation; 2] {
    runs_of("boost", scheduler, disturbance, more)
}

/// The runs of these conditions; each has one.
fn named(names: [&str; 2], text: &str) -> [Observation; 2] {
    let runs = support::run(text);
    names.map(|name| runs.iter().find(|run| run.condition == name).unwrap().clone())
}

/// The run without remedy, and the one with that remedy.
fn runs_of(remedy: &str, scheduler: &str, disturbance: &str, more: &str) -> [Observation; 2] {
    let text = format!(
        "
        {HEAD}
        [host]
        scheduler = '{scheduler}'
        {more}
        [conditions.nothing]
        {disturbance}
        [conditions.remedy]
        {disturbance}
        remedies = ['{remedy}']
        "
    );
    named(["nothing", "remedy"], &text)
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
fn under_the_oracle_no_grace_period_waits_for_a_descheduled_vcpu() {
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
    // Nothing bounds what it lends, so neighbours lose.
    let neighbours = of("oracle", NEIGHBOUR_CPU) / of("nothing", NEIGHBOUR_CPU);
    assert!((0.7..1.07).contains(&neighbours), "{neighbours}");
}

#[test]
fn a_stopped_vcpu_cannot_be_boosted() {
    let paused = |look_ns: u64| {
        let pause = "pauses = [{ vcpu = 1, at_ms = 500, for_ms = 300 }]";
        runs("cfs", pause, &format!("noise_per_s = 0\nboost.look_ns = {look_ns}"))
    };
    let [_, boost] = paused(5_000);
    assert_eq!(support::metric(&boost, BOOSTS), 0.0, "nor one that the daemon's own look displaces");
    let [nothing, boost] = paused(0);
    assert_eq!(support::metric(&boost, BOOSTS), 0.0);
    assert_eq!(support::metric(&boost, GP_P99), support::metric(&nothing, GP_P99));
}

fn each_is_read(remedy: &str, disturbance: &str, key: &str, settings: &[&str]) {
    let hash = |more: &str| runs_of(remedy, "cfs", disturbance, more)[1].provenance.result_hash.clone();
    let usual = hash("");
    for setting in settings {
        assert_ne!(hash(&format!("{key} = {{ {setting} }}")), usual, "{setting}");
    }
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
        "look_ns = 7_000",
        "before_tick = true",
    ] {
        assert_ne!(hash(&format!("boost = {{ {setting} }}")), usual, "{setting}");
    }
    each_is_read(
        "co-schedule",
        QUOTA,
        "co_schedule",
        &["slice_us = 900", "lead_us = 20_000", "look_us = 700"],
    );
    each_is_read("steady-cpus", "overcommit = 2", "steady_cpus", &["steal_percent = 90"]);
    each_is_read("steady-cpus", QUOTA, "steady_cpus", &["look_ms = 7", "retry_ms = 50"]);
    each_is_read("short-slices", QUOTA, "short_slices", &["slice_us = 2_000"]);
    each_is_read(
        "slice-grant",
        QUOTA,
        "slice_grant",
        &["slice_us = 400", "debt_us = 500", "readers_per_ms = 900", "mark_ns = 50"],
    );
}

#[test]
fn looks_cost_cpu_time() {
    let cpu = |cost_ns: u64| {
        let [_, boost] = runs("eevdf", QUOTA, &format!("boost.look_ns = {cost_ns}"));
        support::metric(&boost, BOOST_CPU)
    };
    assert_eq!(cpu(0), 0.0);
    let usual = cpu(5_000);
    // No more than at each look_us.
    assert!(usual > 0.001 && usual <= 0.055, "{usual}");
    assert!(cpu(20_000) > 2.0 * usual, "{}", cpu(20_000));
}

#[test]
fn a_marked_reader_keeps_its_pcpu_for_one_more_slice_and_pays_it_back() {
    for scheduler in ["eevdf", "cfs"] {
        let [_, grant] = runs_of("slice-grant", scheduler, "overcommit = 2", "");
        let [grants, share] = [GRANTS, GRANTED_CPU].map(|id| support::metric(&grant, id));
        assert!(grants > 10.0, "{scheduler}: {grants}");
        // Two vCPUs: a slice of 1 ms each time, or less where the vCPU halts.
        assert!(
            share <= grants * 0.001 / 2.0 * 1.01 && share > grants * 0.000_5 / 2.0,
            "{scheduler}: {share}"
        );
        let neighbours = support::metric(&grant, NEIGHBOUR_CPU);
        assert!((0.45..0.55).contains(&neighbours), "{scheduler}: half is theirs, not {neighbours}");
        let [_, quota] = runs_of("slice-grant", scheduler, QUOTA, "");
        let given = quota.provenance.vcpus[1].run_ns;
        assert!(given <= 2_000_000_000 / 5 + 15_000_000, "{scheduler}: {given}");
        assert!(support::metric(&quota, GRANTS) > 5.0, "{scheduler}");
    }
}

#[test]
fn marks_of_readers_cost_the_guest_its_time() {
    let marked = |readers: u64, mark_ns: u64| {
        let more = format!("slice_grant = {{ readers_per_ms = {readers}, mark_ns = {mark_ns} }}");
        let [nothing, grant] = runs_of("slice-grant", "cfs", "overcommit = 1", &more);
        let ratio = support::metric(&grant, THROUGHPUT) / support::metric(&nothing, THROUGHPUT);
        (support::metric(&grant, MARKS_CPU), ratio)
    };
    assert_eq!(marked(0, 5).0, 0.0);
    // 1,000 sections of two marks of 100 ns in each ms: a fifth more.
    let (share, ratio) = marked(1_000, 100);
    assert!((0.1..0.17).contains(&share) && ratio < 0.9, "{share}, {ratio}");
}

/// The 90th percentile of the times that vCPU 0 stays on its pCPU.
fn long_stay_ns(of: &Observation) -> u64 {
    let off = support::descheduled(of, 0);
    let mut stays: Vec<u64> = off.windows(2).map(|pair| pair[1].start_ns - pair[0].end_ns).collect();
    stays.sort_unstable();
    stays[stays.len() * 9 / 10]
}

#[test]
fn short_slices_are_short_under_both_schedulers() {
    for scheduler in ["eevdf", "cfs"] {
        let [nothing, remedy] = runs_of("short-slices", scheduler, "overcommit = 2", "");
        // A slice of 1 ms ends at a tick, 1 ms later at most.
        assert!(long_stay_ns(&remedy) <= 2_100_000, "{scheduler}: {}", long_stay_ns(&remedy));
        assert!(long_stay_ns(&nothing) > 3_000_000, "{scheduler}: {}", long_stay_ns(&nothing));
        assert!(support::metric(&remedy, GP_P99) < support::metric(&nothing, GP_P99), "{scheduler}");
    }
}

#[test]
fn unpinned_vcpus_find_the_pcpu_that_is_free() {
    for scheduler in ["eevdf", "cfs"] {
        let more = "pcpus = 3\nnoise_per_s = 0";
        // Both vCPUs are pinned to the pCPU 0, and the other two have room.
        let [pinned, free] = runs_of("unpin", scheduler, "pcpus = [0, 0, 1, 2]", more);
        let run_ns = |of: &Observation| of.provenance.vcpus.iter().map(|vcpu| vcpu.run_ns).sum::<u64>();
        assert!(run_ns(&pinned) <= 2_000_000_000, "{scheduler}");
        assert!(run_ns(&free) > 3_990_000_000, "{scheduler}: {}", run_ns(&free));
        let [pinned, free] = [pinned, free].map(|of| support::metric(&of, GP_P99));
        assert!(free < pinned, "{scheduler}: {free} against {pinned}");
    }
}

/// Time during which both of two vCPUs were descheduled, over the time during which one was at least.
fn together(of: &Observation) -> f64 {
    let [first, second] = [0, 1].map(|vcpu| support::descheduled(of, vcpu));
    let both: u64 =
        first.iter().flat_map(|a| second.iter().map(move |b| a.overlap(*b).map_or(0, Span::length_ns))).sum();
    let each: u64 = first.iter().chain(&second).map(|span| span.length_ns()).sum();
    both as f64 / (each - both) as f64
}

#[test]
fn a_gang_is_on_and_off_together_and_takes_no_more_than_its_share() {
    for scheduler in ["eevdf", "cfs"] {
        let [apart, gang] = runs_of("co-schedule", scheduler, "overcommit = 2", "");
        assert!(support::metric(&gang, GANGS) > 10.0);
        assert!(
            together(&gang) > together(&apart),
            "{scheduler}: {} against {}",
            together(&gang),
            together(&apart)
        );
        let neighbours = support::metric(&gang, NEIGHBOUR_CPU);
        assert!((0.45..0.55).contains(&neighbours), "{scheduler}: half is theirs, not {neighbours}");
    }
}

#[test]
fn tasks_leave_vcpus_with_steal_and_bound_ones_stay() {
    let quota = "quota = [{ vcpu = 0, percent = 20 }, { vcpu = 1, percent = 20 }]";
    let text = format!(
        "
        run = {{ repeat = 1, window_ms = 2_000 }}
        guest = {{ vcpus = 4, memory_mib = 512, spinlocks = 'paravirtual' }}
        workload = {{ kind = 'postmark', processes = 2, files = 100, transactions = 10_000 }}
        host.noise_per_s = 0
        [conditions.nothing]
        {quota}
        [conditions.remedy]
        {quota}
        remedies = ['steady-cpus']
        "
    );
    let [nothing, steady] = named(["nothing", "remedy"], &text);
    let throughput = |of| support::metric(of, THROUGHPUT);
    assert!(throughput(&steady) > 1.1 * throughput(&nothing), "{}", throughput(&steady));
    let left = support::metric(&steady, LEFT_ALONE);
    assert!((0.1..=0.5).contains(&left), "two of four at most: {left}");
    // The workers of this one are bound to their vCPUs, whatever the steal.
    let [nothing, steady] = runs_of("steady-cpus", "cfs", QUOTA, "");
    assert!(support::metric(&steady, LEFT_ALONE) > 0.1);
    let run_ns = |of: &Observation| of.provenance.vcpus[1].run_ns;
    assert!(run_ns(&steady) * 10 > run_ns(&nothing) * 9, "{}", run_ns(&steady));
}

#[test]
fn remedies_without_anything_to_work_on_are_refused() {
    let refusal = |more: &str| {
        let text = format!("name = 't'\ntitle = 't'\n{HEAD}\n{more}");
        reprieve_study::overrides::read(&text, None, &[]).map(|_| ()).unwrap_err().to_string()
    };
    let boost = "conditions.c = { remedies = ['boost'] }";
    assert!(
        refusal(&format!("host.scheduler = 'credit'\n{boost}")).contains("only under Linux's schedulers")
    );
    let twice = "conditions.c = { remedies = ['boost', 'boost'] }";
    assert_eq!(refusal(twice), "conditions.c.remedies: boost is there twice; remove one");
    let set = "conditions.c = { set = { host.boost.cap_us = 100 } }";
    assert!(refusal(set).contains("no condition has the remedy boost"), "{}", refusal(set));
    let unpin = "conditions.c = { pcpus = [1, 1], remedies = ['unpin'] }";
    assert!(refusal(unpin).starts_with("conditions.c.remedies: unpin: vCPUs are not"), "{}", refusal(unpin));
    let gang = format!("name = 't'\ntitle = 't'\n{HEAD}\nconditions.c = {{ remedies = ['co-schedule'] }}");
    let one =
        reprieve_study::overrides::read(&gang, None, &["guest.vcpus=1".into()]).unwrap_err().to_string();
    assert!(one.contains("a guest of one vCPU has none"), "{one}");
    let short = "host.slice_us = 900\nconditions.c = { remedies = ['short-slices'] }";
    assert!(
        refusal(short).starts_with("conditions.c.remedies: short-slices: host.slice_us"),
        "{}",
        refusal(short)
    );
    let set = "conditions.c = { remedies = ['boost'], set = { host.slice_grant.slice_us = 100 } }";
    assert!(refusal(set).contains("no condition has the remedy slice-grant"), "{}", refusal(set));
}
