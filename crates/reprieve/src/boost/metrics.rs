//! The metrics of `reprieve boost`, for Prometheus.

use reprieve_linux::metrics::{Text, label};
use reprieve_vm::attach::Seen;

use super::guest::Guest;

/// The text for these guests.
pub fn text(guests: &[Guest], acting: bool) -> Text {
    let seen: Vec<(String, Seen, &Guest)> =
        guests.iter().map(|guest| (labels(guest), guest.seen(), guest)).collect();
    let mut text = Text::new("reprieve_boost_");
    text.one("acting", "1 if quotas are lent, 0 if visits are only counted.", f64::from(u8::from(acting)));
    let mut each = |name: &str, help: &str, value: fn(&Seen, &Guest) -> f64| {
        text.many(name, help, seen.iter().map(|(labels, seen, guest)| (labels.clone(), value(seen, guest))));
    };
    each("watched", "1 while the guest's memory is read.", |_, guest| {
        f64::from(u8::from(guest.ended().is_none()))
    });
    each("watched_seconds_total", "Time that it was watched.", |seen, _| seconds(seen.watched_ns));
    each("grace_periods_total", "Grace periods seen from start to end.", |seen, _| {
        seen.durations.len() as f64
    });
    each("grace_period_average_seconds", "Their average duration.", |seen, _| seen.durations.mean() / 1e9);
    each("grace_period_p99_seconds", "The 99th percentile of their durations.", |seen, _| {
        seconds(seen.durations.value_at_quantile(0.99))
    });
    each("waited_seconds_total", "Time that grace periods waited for vCPUs that were off.", |seen, _| {
        seconds(seen.waited_ns)
    });
    each("longest_wait_seconds", "The longest of these times.", |seen, _| seconds(seen.longest_wait_ns));
    each("visits_total", "Times that a vCPU was let run, or would have been.", |_, guest| {
        guest.given().visits as f64
    });
    each("lent_seconds_total", "CPU time within these.", |_, guest| seconds(guest.given().lent_ns));
    each("cpu_seconds_total", "CPU time of the looks.", |_, guest| seconds(guest.given().own_cpu_ns));
    each("restarts_total", "Times that the guest was started anew.", |_, guest| guest.restarts as f64);
    let vcpus = |of: fn(&Seen) -> &Vec<u64>| {
        seen.iter().flat_map(move |(labels, seen, _)| {
            of(seen)
                .iter()
                .enumerate()
                .map(move |(vcpu, ns)| (format!("{labels},vcpu=\"{vcpu}\""), seconds(*ns)))
        })
    };
    text.many(
        "vcpu_off_seconds_total",
        "Time that a vCPU wanted to run and could not.",
        vcpus(|seen| &seen.off_ns),
    );
    text.many("vcpu_run_seconds_total", "CPU time of a vCPU.", vcpus(|seen| &seen.run_ns));
    text
}

fn labels(guest: &Guest) -> String {
    format!("guest=\"{}\",pid=\"{}\"", label(&guest.qemu.name), guest.qemu.pid)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
