//! Remedies of the guest: what each does against preempted readers, what it costs, and that each of its settings is read.

mod support;

use reprieve_study::Observation;
use reprieve_study::metric::{
    BACKLOG_PEAK, FOOTPRINT_PEAK, GP_COMPUTE, GP_MAX, GP_MEAN, GP_P99, IPIS, SYNC_MEAN, THROUGHPUT,
    UNUSABLE_PEAK,
};

const MEMORY: &str = "workload = { kind = 'memory', burst = 10 }";
/// vCPU 1 is off for 80 ms of every 100 ms.
const QUOTA: &str = "quota = [{ vcpu = 1, percent = 20, period_ms = 100 }]";

/// The run without remedy, and the one with it.
fn runs(workload: &str, remedy: &str, more: &str) -> [Observation; 2] {
    let text = format!(
        "
        run = {{ repeat = 1, warmup_ms = 100, window_ms = 2_000 }}
        {workload}
        [guest]
        vcpus = 4
        memory_mib = 512
        speed = 4.0
        spinlocks = 'paravirtual'
        {more}
        [conditions.nothing]
        {QUOTA}
        [conditions.remedy]
        {QUOTA}
        remedies = ['{remedy}']
        "
    );
    let runs = support::run(&text);
    ["nothing", "remedy"].map(|name| runs.iter().find(|run| run.condition == name).unwrap().clone())
}

/// A metric with the remedy over the same without.
fn ratio(runs: &[Observation; 2], id: &str) -> f64 {
    support::metric(&runs[1], id) / support::metric(&runs[0], id)
}

/// Each setting changes the run with the remedy, and not the one without.
fn each_is_read(workload: &str, remedy: &str, settings: &[&str]) {
    let hashes = |more: &str| runs(workload, remedy, more).map(|run| run.provenance.result_hash);
    let [nothing, usual] = hashes("");
    assert_ne!(nothing, usual, "{remedy}");
    for setting in settings {
        let [same, changed] = hashes(setting);
        assert_eq!(same, nothing, "{setting}");
        assert_ne!(changed, usual, "{setting}");
    }
}

#[test]
fn latent_objects_are_used_again() {
    let runs = runs(MEMORY, "deferred-aware-slab", "");
    // Nobody frees a grace period's objects one by one, nor makes slabs for as many.
    assert!(ratio(&runs, GP_COMPUTE) < 0.1, "{}", ratio(&runs, GP_COMPUTE));
    assert!(ratio(&runs, THROUGHPUT) > 1.0, "{}", ratio(&runs, THROUGHPUT));
    assert!(ratio(&runs, FOOTPRINT_PEAK) < 0.95, "{}", ratio(&runs, FOOTPRINT_PEAK));
    assert!(ratio(&runs, UNUSABLE_PEAK) < 0.8, "{}", ratio(&runs, UNUSABLE_PEAK));
    // What it asks for.
    assert!(ratio(&runs, IPIS) > 1.0, "{}", ratio(&runs, IPIS));
}

#[test]
fn each_setting_of_the_slab_is_read() {
    let settings = ["slab.keep_ms = 3", "slab.short_percent = 90", "slab.expedite = false"];
    each_is_read(MEMORY, "deferred-aware-slab", &settings);
}

#[test]
fn back_pressure_bounds_what_is_outstanding_and_costs_throughput() {
    let small = "pressure = { low_mib = 16, high_mib = 64 }";
    let runs = runs(MEMORY, "back-pressure", small);
    let peak_bytes = |run| support::metric(run, BACKLOG_PEAK) * 1024.0;
    // A burst of each vCPU can come on top.
    assert!(
        peak_bytes(&runs[0]) > 100e6 && peak_bytes(&runs[1]) < 64.0 * 1048576.0 + 41e3,
        "{}",
        peak_bytes(&runs[1])
    );
    assert!(ratio(&runs, FOOTPRINT_PEAK) < 0.7, "{}", ratio(&runs, FOOTPRINT_PEAK));
    assert!(ratio(&runs, THROUGHPUT) < 1.0, "{}", ratio(&runs, THROUGHPUT));
}

#[test]
fn latent_objects_are_outstanding_too() {
    let remedies = "back-pressure', 'deferred-aware-slab";
    let runs = runs(MEMORY, remedies, "pressure = { low_mib = 16, high_mib = 64 }");
    assert!(support::metric(&runs[1], BACKLOG_PEAK) * 1024.0 < 64.0 * 1048576.0 + 41e3);
}

#[test]
fn each_setting_of_back_pressure_is_read() {
    let low = "pressure.low_mib = 4\npressure.high_mib = 64\n";
    let hash =
        |more: &str| runs(MEMORY, "back-pressure", &format!("{low}{more}"))[1].provenance.result_hash.clone();
    let usual = hash("");
    assert_ne!(
        runs(MEMORY, "back-pressure", "pressure.low_mib = 5\npressure.high_mib = 64")[1]
            .provenance
            .result_hash,
        usual
    );
    assert_ne!(
        runs(MEMORY, "back-pressure", "pressure.low_mib = 4\npressure.high_mib = 32")[1]
            .provenance
            .result_hash,
        usual
    );
    assert_ne!(hash("pressure.longest_us = 300"), usual);
    let shortest = hash("pressure.longest_us = 1");
    assert_ne!(shortest, usual);
    assert_ne!(hash("pressure.longest_us = 1\npressure.synchronize = false"), shortest);
}

#[test]
fn only_those_who_wait_get_expedited_grace_periods() {
    let runs = runs(MEMORY, "expedited", "");
    assert!(ratio(&runs, SYNC_MEAN) < 0.8, "{}", ratio(&runs, SYNC_MEAN));
    // Callbacks wait as long as before: the vCPU is off for up to 80 ms.
    assert!(support::metric(&runs[1], GP_P99) > 50e6, "{}", support::metric(&runs[1], GP_P99));
    assert!(ratio(&runs, IPIS) > 1.0, "{}", ratio(&runs, IPIS));
}

#[test]
fn whoever_is_asked_reports_before_its_tick() {
    let runs = runs(MEMORY, "ask-first", "");
    assert!(ratio(&runs, GP_MEAN) < 0.9, "{}", ratio(&runs, GP_MEAN));
    // A descheduled vCPU cannot answer. (Short grace periods are so many that quantiles do not show the long ones.)
    assert!(support::metric(&runs[1], GP_MAX) > 50e6, "{}", support::metric(&runs[1], GP_MAX));
    assert!(ratio(&runs, IPIS) > 2.0, "{}", ratio(&runs, IPIS));
}

#[test]
fn each_setting_of_asking_is_read() {
    each_is_read(MEMORY, "ask-first", &["ask_first.at_start = false"]);
}

#[test]
fn offloaded_callbacks_leave_softirqs() {
    let runs = runs(MEMORY, "offload", "");
    assert!(ratio(&runs, GP_COMPUTE) < 0.2, "{}", ratio(&runs, GP_COMPUTE));
}

#[test]
fn an_urgent_kthread_does_not_wait_for_other_tasks() {
    // A task on each vCPU, so that the kthread has to wait for one.
    let runs = runs(MEMORY, "kthread-prio", "");
    assert!(ratio(&runs, GP_MEAN) < 0.95, "{}", ratio(&runs, GP_MEAN));
}

#[test]
fn a_placed_kthread_is_not_put_on_a_descheduled_vcpu() {
    let runs = runs(MEMORY, "kthread-placed", "");
    assert!(ratio(&runs, GP_MEAN) < 1.0, "{}", ratio(&runs, GP_MEAN));
    // It still waits for the descheduled vCPU's report.
    assert!(support::metric(&runs[1], GP_MAX) > 50e6, "{}", support::metric(&runs[1], GP_MAX));
}

#[test]
fn remedies_that_change_nothing_are_refused() {
    let refusal = |workload: &str, more: &str| {
        let text = format!("name = 't'\ntitle = 't'\nrun = {{ window_ms = 500 }}\n{workload}\n{more}");
        reprieve_study::overrides::read(&text, None, &[]).map(|_| ()).unwrap_err().to_string()
    };
    let with = |remedy: &str| format!("conditions.c = {{ remedies = ['{remedy}'] }}");
    let large = "workload = { kind = 'memory', object_bytes = 9_000 }";
    assert!(refusal(large, &with("deferred-aware-slab")).contains("objects above 8 KiB"));
    let unmeasured = format!("{MEMORY}\nobserve = {{ sync_every_ms = 0 }}");
    assert!(refusal(&unmeasured, &with("expedited")).contains("nobody waits for a grace period here"));
    assert!(
        refusal(&format!("{MEMORY}\nguest = {{ vcpus = 1 }}"), &with("ask-first")).contains("nobody to ask")
    );
    let marks = format!("{MEMORY}\nguest = {{ pressure = {{ low_mib = 9, high_mib = 8 }} }}");
    assert!(refusal(&marks, &with("back-pressure")).contains("guest.pressure.high_mib is below"));
    let unread = "conditions.c = { set = { guest.slab.keep_ms = 3 } }";
    assert!(refusal(MEMORY, unread).contains("no condition has the remedy deferred-aware-slab"));
}
