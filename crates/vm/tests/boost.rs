//! Boosts of a real guest's vCPU under a quota, by grace periods and at random times.

mod support;

use reprieve_linux::proc::ProcRoot;
use reprieve_study::scenario::overrides;
use reprieve_study::{GroundKind, metric};
use support::Bench;

/// The quota is so small that the vCPU uses it up on any machine, however busy.
const TEXT: &str = "
    name = 'boosts'
    title = 'boosts'
    workload = { kind = 'memory' }
    run = { repeat = 1, warmup_ms = 300, window_ms = 2500 }
    guest = { vcpus = 2, memory_mib = 256 }
    host = { boost = { threshold_us = 1000, cap_us = 1000, cool_down_us = 8000, look_us = 250, unaimed_per_s = 100 } }
    [conditions.nothing]
    quota = [{ vcpu = 1, percent = 3 }]
    [conditions.boost]
    quota = [{ vcpu = 1, percent = 3 }]
    remedies = ['boost']
    [conditions.boost-unaimed]
    quota = [{ vcpu = 1, percent = 3 }]
    remedies = ['boost-unaimed']
    [conditions.burst]
    quota = [{ vcpu = 1, percent = 3, burst_ms = 3 }]
";

/// Cgroups that this process has made.
fn cgroups() -> Vec<std::path::PathBuf> {
    let base = reprieve_linux::cgroup::Cgroups::detect(&ProcRoot::default()).unwrap().base;
    let own = format!("reprieve-{}-", std::process::id());
    let entries = std::fs::read_dir(base).unwrap().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).map(|e| e.path()).collect()
}

#[test]
fn visits_are_given_and_counted_and_no_cgroup_stays() {
    let Some(bench) = Bench::open() else { return };
    if let Err(error) = reprieve_vm::ground::try_quota(&bench.lab.host) {
        return eprintln!("skipped: {error}");
    }
    let scenario = overrides::read(TEXT, Some(GroundKind::Vm), &[]).unwrap();
    for planned in scenario.plan().unwrap() {
        let out = bench.lab.run(&planned, &mut |_| {}).unwrap();
        let metrics = &out.metrics;
        eprintln!("{}: {:?}", planned.condition, metrics);
        match planned.condition.starts_with("boost") {
            true => {
                assert!(metrics[metric::BOOSTS] > 0.0 && metrics[metric::BOOSTED_CPU] > 0.0);
                assert!(metrics[metric::BOOST_CPU] > 0.0);
            }
            false => assert!(!metrics.contains_key(metric::BOOSTS)),
        }
        if out.provenance.scheduling_source == "perf switch records" {
            assert!(metrics[metric::QUOTA_PEAK] > 0.0);
        }
        assert_eq!(cgroups(), Vec::<std::path::PathBuf>::new());
    }
}
