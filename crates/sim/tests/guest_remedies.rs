//! Remedies of the guest: what each does against preempted readers, what it costs, and that each of its settings is read.

mod support;

use reprieve_study::Observation;
use reprieve_study::metric::{FOOTPRINT_PEAK, GP_COMPUTE, IPIS, THROUGHPUT, UNUSABLE_PEAK};

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
fn remedies_that_change_nothing_are_refused() {
    let refusal = |workload: &str, more: &str| {
        let text = format!("name = 't'\ntitle = 't'\nrun = {{ window_ms = 500 }}\n{workload}\n{more}");
        reprieve_study::overrides::read(&text, None, &[]).map(|_| ()).unwrap_err().to_string()
    };
    let with = |remedy: &str| format!("conditions.c = {{ remedies = ['{remedy}'] }}");
    let large = "workload = { kind = 'memory', object_bytes = 9_000 }";
    assert!(refusal(large, &with("deferred-aware-slab")).contains("objects above 8 KiB"));
    let unread = "conditions.c = { set = { guest.slab.keep_ms = 3 } }";
    assert!(refusal(MEMORY, unread).contains("no condition has the remedy deferred-aware-slab"));
}
