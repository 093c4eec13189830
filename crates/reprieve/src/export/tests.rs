//! Whether the text, the packaging and the documentation name the same metrics.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use reprieve_policy::explain::{Cause, Confidence, Finding, State, Verdict};
use reprieve_policy::fingerprint::Quota;
use reprieve_policy::sample::{Memory, Sample, VcpuSample};

use super::page::{Form, Pages};
use super::totals::{Own, Totals};

const SECOND: u64 = 1_000_000_000;

/// Totals in which everything is known.
fn full() -> Totals {
    let vcpu = |vcpu| VcpuSample {
        vcpu,
        beats: 20,
        idle_ns: Some(SECOND / 2),
        steal_ns: Some(SECOND / 4),
        run_delay_ns: Some(0),
        ..VcpuSample::default()
    };
    let sample = Sample {
        span_ns: SECOND,
        vcpus: vec![vcpu(0), vcpu(1)],
        throttled_ns: Some(0),
        cpu_wait_ns: Some(0),
        memory_wait_ns: Some(0),
        io_wait_ns: Some(0),
        kthread_wait_ns: Some(0),
        grace_periods_ns: vec![SECOND / 50, 3 * SECOND],
        stepped_ns: -(SECOND as i64),
        memory: Some(Memory { free_bytes: 4096, ..Memory::default() }),
        ..Sample::default()
    };
    let quota = Quota { period_ns: SECOND / 10, on_ns: SECOND / 50, regularity: 1.0, is_ambiguous: false };
    let cause = Cause::Quota { quota, vcpus: vec![0, 1], is_of_vm: true };
    let finding = Finding { cause, confidence: Confidence::Sure, lost_permille: 800 };
    let mut totals = Totals::default();
    totals.add(&sample);
    totals.state = State::Known(Verdict { findings: vec![finding] });
    totals.own = Own { cpu_ns: SECOND, resident_bytes: Some(8192) };
    totals
}

fn text(totals: Totals, form: Form) -> String {
    Pages::of(Arc::new(Mutex::new(totals))).text(form)
}

/// The names of a text's series, and those of its histograms as a whole.
fn names(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names = lines.map(|line| line.split(['{', ' ']).next().unwrap());
    let whole = names.clone().filter_map(|name| name.strip_suffix("_bucket"));
    names.clone().chain(whole).map(String::from).collect()
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a text that are, or should be, names of metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let is_name = |word: &&str| {
        word.starts_with("reprieve_") || word.starts_with("process_") || word.contains(":reprieve_")
    };
    words.filter(is_name).collect()
}

#[test]
fn known_values_are_in_the_text_with_their_units() {
    let text = text(full(), Form::OpenMetrics);
    for line in [
        "# TYPE reprieve_vcpu_time_seconds counter",
        "# UNIT reprieve_vcpu_time_seconds seconds",
        "reprieve_vcpu_time_seconds_total{vcpu=\"1\",cpu_mode=\"steal\"} 0.25",
        "reprieve_vcpu_time_seconds_total{vcpu=\"0\",cpu_mode=\"idle\"} 0.5",
        "reprieve_grace_period_wait_seconds_bucket{le=\"0.02\"} 1",
        "reprieve_grace_period_wait_seconds_bucket{le=\"5.0\"} 2",
        "reprieve_grace_period_wait_seconds_sum 3.02",
        "reprieve_clock_offset_seconds -1.0",
        "reprieve_memory_free_bytes 4096.0",
        "reprieve_state{state=\"known\"} 1.0",
        "reprieve_state{state=\"quiet\"} 0.0",
        "reprieve_verdict{cause=\"quota\"} 1.0",
        "reprieve_verdict{cause=\"contention\"} 0.0",
        "reprieve_verdict_confidence{cause=\"quota\"} 3.0",
        "reprieve_verdict_lost_ratio{cause=\"quota\"} 0.8",
        "reprieve_quota_period_seconds{cause=\"quota\"} 0.1",
        "reprieve_quota_share_ratio{cause=\"quota\"} 0.2",
        "process_cpu_seconds_total 1.0",
        "process_resident_memory_bytes 8192.0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn what_is_not_known_has_no_value() {
    let names = names(&text(Totals::default(), Form::Prometheus));
    let unknown = names.iter().filter(|name| {
        ["vcpu", "throttled", "pressure", "kthread", "memory", "slab", "quota"]
            .iter()
            .any(|part| name.contains(part))
    });
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(names.contains("reprieve_verdict") && names.contains("reprieve_state"));
}

#[test]
fn both_forms_have_the_same_series() {
    assert_eq!(names(&text(full(), Form::OpenMetrics)), names(&text(full(), Form::Prometheus)));
    let openmetrics = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1";
    assert_eq!(Form::wanted(openmetrics), Form::OpenMetrics);
    assert_eq!(Form::wanted("text/plain"), Form::Prometheus);
}

#[test]
fn rules_and_dashboard_use_metrics_that_exist() {
    let exported = names(&text(full(), Form::OpenMetrics));
    let rules = read("packaging/prometheus/reprieve.rules.yml");
    let recorded: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
    for path in [
        "packaging/prometheus/reprieve.rules.yml",
        "packaging/prometheus/reprieve.rules.test.yml",
        "packaging/grafana/reprieve.json",
    ] {
        let text = read(path);
        let used = named(&text);
        assert!(used.len() >= 5, "{path}: {used:?}");
        for name in used {
            assert!(exported.contains(name) || recorded.contains(name), "{path}: {name} does not exist");
        }
    }
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("packaging/grafana/reprieve.json")).unwrap();
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() >= 5));
}

#[test]
fn the_documentation_has_each_metric_and_a_runbook_for_each_alert() {
    let page = read("docs/exporter.md");
    let documented = named(&page);
    let exported = names(&text(full(), Form::OpenMetrics));
    let is_part = |name: &str| ["_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
    for name in exported.iter().filter(|name| !is_part(name)) {
        assert!(documented.contains(name.as_str()), "{name} is not documented");
    }
    for name in documented.iter().filter(|name| !name.contains(':')) {
        assert!(exported.contains(*name), "{name} is documented, but does not exist");
    }
    let rules = read("packaging/prometheus/reprieve.rules.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        assert!(page.lines().any(|line| line == format!("### {alert}")), "{alert} has no runbook");
        let link = format!("runbook: docs/exporter.md#{}", alert.to_lowercase());
        assert!(rules.lines().any(|line| line.trim() == link), "{link}");
    }
}
