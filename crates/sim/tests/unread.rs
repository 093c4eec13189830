//! The keys that a scenario's check calls without effect have none, and the others of the same list have one: each is
//! changed in the file, where it is not refused, and the hash of the result is compared.

mod support;

use reprieve_study::{GroundKind, overrides};

/// Workload, scheduler.
const WHERE: [(&str, &str); 6] = [
    ("kind = 'memory'", "eevdf"),
    ("kind = 'memory'", "credit"),
    ("kind = 'wakeup'", "cfs"),
    ("kind = 'wakeup'", "credit"),
    ("kind = 'wakeup'", "credit2"),
    ("kind = 'wakeup'", "rtds"),
];

/// A key, and a value that is not its default.
const KEYS: [(&str, &str); 18] = [
    ("run.foreign_cpu_limit_percent", "6"),
    ("run.redo_limit", "9"),
    ("guest.boot_limit_ms", "5_000"),
    ("guest.memory_mib", "300"),
    ("guest.hz", "1_000"),
    ("guest.speed", "2.0"),
    ("guest.rcu.blimit", "1"),
    ("guest.rcu.jiffies_till_first_fqs", "3"),
    ("observe.sync_every_ms", "7"),
    ("host.hz", "1_000"),
    ("host.noise_per_s", "9"),
    ("host.noise_bound", "false"),
    ("host.switch_ns", "9_000"),
    ("host.xen.slice_ms", "5"),
    ("host.xen.ratelimit_us", "100"),
    ("host.xen.guest_weight", "64"),
    ("host.xen.spinner_weight", "700"),
    ("host.slice_us", "20_000"),
];

/// One key a line, so that another line can be added.
fn text(workload: &str, scheduler: &str) -> String {
    format!(
        "
        run.repeat = 1
        run.warmup_ms = 50
        run.window_ms = 600
        workload.{workload}
        host.scheduler = '{scheduler}'
        conditions.crowded.spinners = 3
        "
    )
}

fn hash(text: &str) -> String {
    support::run_one(text).provenance.result_hash
}

/// Why the key is refused on the command line.
fn refusal(text: &str, key: &str, value: &str) -> Option<String> {
    let text = format!("name = 't'\ntitle = 't'\n{text}");
    let read = overrides::read(&text, Some(GroundKind::Sim), &[format!("{key}={value}")]);
    read.err().map(|error| error.to_string())
}

#[test]
fn what_is_refused_as_without_effect_has_none_and_the_rest_has_one() {
    let (mut refused, mut wrong) = (0, Vec::new());
    for (workload, scheduler) in WHERE {
        let plain = text(workload, scheduler);
        let before = hash(&plain);
        for (key, value) in KEYS {
            let why = refusal(&plain, key, value);
            let is_unread = why.as_ref().is_some_and(|why| why.contains("has no effect here"));
            if why.is_some() && !is_unread || key.starts_with("host.xen") && !scheduler.starts_with("credit")
            {
                // Refused in a file, too.
                continue;
            }
            refused += usize::from(is_unread);
            let changed = hash(&format!("{plain}{key} = {value}\n")) != before;
            if changed == is_unread {
                wrong.push(format!("{workload}, {scheduler}: {key}: changed {changed}, refused {is_unread}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(refused > 30, "{refused}");
}
