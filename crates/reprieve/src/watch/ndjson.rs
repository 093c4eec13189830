//! `--ndjson`: a JSON object a second, one a line, with the same verdict as the screen and the figures of the sample.

use std::io::{ErrorKind, Write};

use reprieve_hindsight::day;
use reprieve_policy::canary;
use reprieve_policy::fingerprint::Off;
use reprieve_policy::sample::{Sample, VcpuSample};
use reprieve_study::shown;
use serde_json::{Value, json};

use super::verdict::Told;
use crate::failure::Failure;

/// The version of the JSON.
const VERSION: u32 = 1;
/// The most names in a list.
const MOST_NAMES: usize = 10;

/// Prints a line; whether anybody still reads.
pub fn print(sample: &Sample, told: &Told) -> Result<bool, Failure> {
    let line = format!("{}\n", shown::json(&of(sample, told).to_string()));
    let mut out = std::io::stdout().lock();
    match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::output(error)),
    }
}

fn of(sample: &Sample, told: &Told) -> Value {
    let deferred = sample.deferred.as_ref();
    let memory = sample.memory.as_ref();
    json!({
        "watch_version": VERSION,
        "time": day::text(sample.day_ns),
        "day_ns": sample.day_ns,
        "at_ns": sample.at_ns,
        "span_ns": sample.span_ns,
        "tier": sample.tier.name(),
        "beat_ns": sample.beat_ns,
        "state": told.kind.name(),
        "says": told.headline,
        "hint": told.detail,
        "findings": told.findings,
        "vcpus": sample.vcpus.iter().map(|vcpu| of_vcpu(sample, vcpu)).collect::<Vec<_>>(),
        "membarrier_longest_ns": sample.grace_periods_ns.iter().max(),
        "membarrier_open_ns": sample.open_grace_period_ns,
        "grace_period_longest_ns": deferred.and_then(|deferred| deferred.grace_periods_ns.iter().max()),
        "queued": deferred.map(|deferred| &deferred.queued[..deferred.queued.len().min(MOST_NAMES)]),
        "in_the_way_ns": &sample.in_the_way[..sample.in_the_way.len().min(MOST_NAMES)],
        "throttled_ns": sample.throttled_ns,
        "clock_step_ns": sample.stepped_ns,
        "suspended_ns": sample.suspended_ns,
        "cpu_wait_ns": sample.cpu_wait_ns,
        "memory_wait_ns": sample.memory_wait_ns,
        "io_wait_ns": sample.io_wait_ns,
        "kthread_wait_ns": sample.kthread_wait_ns,
        "available_bytes": memory.map(|memory| memory.available_bytes),
        "slab_bytes": memory.map(|memory| memory.slab_bytes),
        "unreclaimable_bytes": memory.map(|memory| memory.unreclaimable_bytes),
        "stalls": sample.stalls,
        "lockups": sample.lockups,
    })
}

fn of_vcpu(sample: &Sample, vcpu: &VcpuSample) -> Value {
    json!({
        "vcpu": vcpu.vcpu,
        "off_ns": canary::off_ns(sample, vcpu),
        "offs": (vcpu.offs.len() as u64).saturating_add(vcpu.lost),
        "longest_off_ns": vcpu.offs.iter().map(Off::length_ns).max().unwrap_or(0),
        "kept_ns": vcpu.kept_ns,
        "idle_ns": vcpu.idle_ns,
        "steal_ns": vcpu.steal_ns,
        "run_delay_ns": vcpu.run_delay_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MS, quota, recent};
    use super::super::verdict;
    use super::*;

    #[test]
    fn a_line_has_the_verdict_and_the_figures() {
        let samples = || (1..9).map(|at| quota(at, at > 1));
        let mut last = samples().next_back().unwrap();
        last.in_the_way = (0..1000).map(|at| (format!("\u{1b}{at}"), 1)).collect();
        let value = of(&last, &verdict::told(&recent(samples())));
        assert_eq!((&value["state"], &value["findings"][0]["cause"]), (&"known".into(), &"quota".into()));
        assert_eq!(value["time"], "2026-11-25T20:00:08Z");
        assert_eq!(value["membarrier_longest_ns"], 120 * MS);
        assert_eq!((&value["vcpus"][1]["offs"], &value["vcpus"][0]["offs"]), (&10.into(), &0.into()));
        assert_eq!(value["in_the_way_ns"].as_array().unwrap().len(), MOST_NAMES);
        assert_eq!(value["grace_period_longest_ns"], Value::Null);
    }
}
