//! What is printed and recorded of a run.

use crate::engine::{Control, Outcome, Plan};
use reprieve_rcu::capabilities;
use std::fmt::Write;

/// Whether a run found what it should: errors only in negative controls, and no failed child of a fork.
pub fn is_good(plan: &Plan, found: &Outcome) -> bool {
    (found.errors == 0) == (plan.control == Control::None) && found.disturbances.forks_failed == 0
}

/// One line for people.
pub fn line(plan: &Plan, found: &Outcome) -> String {
    let did = &found.disturbances;
    format!(
        "{:?}, control {:?}, {:?}: {} errors in {} sections and {} of handlers; {} retired, ages below {:?} ns; \
         {} threads, {} signals, {} parked, {} migrations, {} threads and {} times all stopped, {} forks \
         ({} failed); {} fallbacks, grace periods {:?}{}",
        plan.kind,
        plan.control,
        plan.fencing,
        found.errors,
        found.sections,
        found.in_handlers,
        found.retired,
        found.ages,
        found.lives,
        did.signals,
        did.parked,
        did.migrations,
        did.threads_stopped,
        did.process_stopped,
        did.forks,
        did.forks_failed,
        found.stats.fallbacks,
        found.stats.grace_periods,
        if is_good(plan, found) { "" } else { "  <-- WRONG" }
    )
}

/// All runs, and where they were made.
pub fn json(runs: &[(Plan, Outcome)]) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mut out = String::new();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = write!(
        out,
        "{{\n  \"capabilities\": \"{}\",\n  \"kernel\": \"{}\",\n  \"cpus\": {cpus},\n  \"load_average\": \"{}\",\n  \
         \"good\": {},\n  \"runs\": [\n",
        capabilities(),
        read("/proc/sys/kernel/osrelease"),
        read("/proc/loadavg"),
        runs.iter().all(|(plan, found)| is_good(plan, found)),
    );
    let lines: Vec<_> = runs.iter().map(|(plan, found)| format!("    {}", run(plan, found))).collect();
    out + &lines.join(",\n") + "\n  ]\n}\n"
}

fn run(plan: &Plan, found: &Outcome) -> String {
    let (did, stats) = (&found.disturbances, &found.stats);
    let text = |v: &dyn std::fmt::Debug| format!("\"{v:?}\"");
    let ages: Vec<_> = found.ages.iter().map(|(below, n)| format!("[{below}, {n}]")).collect();
    let fields = [
        ("kind", text(&plan.kind)),
        ("control", text(&plan.control)),
        ("fencing", text(&plan.fencing)),
        ("most_seconds", plan.duration.as_secs().to_string()),
        ("errors", found.errors.to_string()),
        ("sections", found.sections.to_string()),
        ("sections_in_handlers", found.in_handlers.to_string()),
        ("reader_threads", found.lives.to_string()),
        ("retired", found.retired.to_string()),
        ("ages_below_ns", format!("[{}]", ages.join(", "))),
        ("signals", did.signals.to_string()),
        ("parked_in_handlers", did.parked.to_string()),
        ("migrations", did.migrations.to_string()),
        ("threads_stopped", did.threads_stopped.to_string()),
        ("process_stopped", did.process_stopped.to_string()),
        ("forks", did.forks.to_string()),
        ("forks_failed", did.forks_failed.to_string()),
        ("fallbacks", stats.fallbacks.to_string()),
        ("switches", stats.switches.to_string()),
        ("restarts_of_process", stats.restarts.to_string()),
        ("grace_periods", stats.grace_periods.count().to_string()),
        ("grace_period_p50_ns", stats.grace_periods.quantile_ns(0.5).to_string()),
        ("grace_period_p99_ns", stats.grace_periods.quantile_ns(0.99).to_string()),
        ("grace_period_max_ns", stats.grace_periods.max_ns().to_string()),
        ("peak_garbage_objects", stats.peak_objects.to_string()),
    ];
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}
