//! The daemon's metrics in Prometheus' text form.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use reprieve_policy::place::Why;

use crate::Result;
use crate::metrics::Text;
use crate::migrate::act::Outcomes;
use crate::migrate::link::Status;

/// The values of all metrics; `render` says what each means. Decisions are in the order of [`Why::ALL`].
#[derive(Debug)]
pub struct Counted<'a> {
    pub status: &'a Status,
    pub outcomes: &'a Outcomes,
    pub decisions: &'a [u64; Why::ALL.len()],
    pub tasks: usize,
    pub turned_away: u64,
    pub freed_children: u64,
    pub unrestored: usize,
    pub in_doubt: usize,
    pub overtaken: u64,
    pub cpu_ns: u64,
    pub period_ns: u64,
    pub lost: u64,
    pub given_up: u64,
    pub acting: bool,
}

/// The metrics as text.
fn render(counted: &Counted) -> Text {
    let mut text = Text::new("reprieve_migrate_");
    text.one("tasks", "Managed tasks.", counted.tasks as f64);
    text.one("io_tasks", "Managed tasks that are I/O tasks now.", load(&counted.status.io_tasks));
    text.one("turned_away_total", "Tasks not managed for lack of room.", counted.turned_away as f64);
    text.one(
        "freed_children_total",
        "Children freed of an inherited binding.",
        counted.freed_children as f64,
    );
    text.one("unrestored_tasks", "Tasks whose mask could not be restored yet.", counted.unrestored as f64);
    text.one(
        "doubtful_tasks",
        "Tasks left bound that have inherited a binding or were bound by their users.",
        counted.in_doubt as f64,
    );
    text.one(
        "overtaken_total",
        "Masks that others set while they were being restored, and that may be overwritten.",
        counted.overtaken as f64,
    );
    text.one("acting", "1 if decisions are carried out.", f64::from(u8::from(counted.acting)));
    text.one("cpu_seconds_total", "CPU time of the daemon.", counted.cpu_ns as f64 / 1e9);
    text.one("beat_period_seconds", "Time between two beats.", counted.period_ns as f64 / 1e9);
    text.one("lost_total", "Signals lost between threads.", counted.lost as f64);
    text.one(
        "given_up_total",
        "How often moves were stopped because throughput fell.",
        counted.given_up as f64,
    );
    let decisions = Why::ALL
        .iter()
        .zip(counted.decisions)
        .map(|(why, count)| (format!("why=\"{}\"", why.name()), *count as f64));
    text.many("decisions_total", "Decisions by reason.", decisions);
    let Outcomes { done, overtaken, foreign, refused } = counted.outcomes;
    let orders = [("done", done), ("overtaken", overtaken), ("foreign", foreign), ("refused", refused)];
    let orders = orders.map(|(name, count)| (format!("outcome=\"{name}\""), load(count)));
    text.many("moves_total", "Changes of affinity by outcome.", orders);
    render_vcpus(&mut text, counted.status);
    text
}

fn render_vcpus(text: &mut Text, status: &Status) {
    let vcpus = || status.vcpus.iter().enumerate();
    let label = |vcpu: usize| format!("vcpu=\"{vcpu}\"");
    let off = vcpus().map(|(i, vcpu)| (label(i), load(&vcpu.off_permille) / 1e3));
    text.many("vcpu_off_ratio", "Share of the last second a vCPU was off.", off);
    let slices = vcpus().map(|(i, vcpu)| (label(i), load(&vcpu.slice_ns) / 1e9));
    text.many("vcpu_slice_seconds", "Median slice of a vCPU.", slices);
    let regular = vcpus().map(|(i, vcpu)| (label(i), load(&vcpu.regular_permille) / 1e3));
    text.many("vcpu_regular_ratio", "Share of recent slices close to the median.", regular);
    let gaps = vcpus().flat_map(|(i, vcpu)| {
        let verdicts = ["host", "guest", "unknown"].into_iter().zip(&vcpu.gaps);
        verdicts.map(move |(name, count)| (format!("vcpu=\"{i}\",verdict=\"{name}\""), load(count)))
    });
    text.many("vcpu_gaps_total", "Late beats by verdict.", gaps);
}

fn load(value: &AtomicU64) -> f64 {
    value.load(Ordering::Relaxed) as f64
}

/// Replaces the file for metrics.
pub fn write(path: &Path, counted: &Counted) -> Result<()> {
    render(counted).write(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_metric_with_the_prefix() {
        let (status, outcomes) = (Status::new(2), Outcomes::default());
        status.vcpus[1].gaps[0].store(7, Ordering::Relaxed);
        let decisions = [1, 2, 3, 4, 5, 6, 7];
        let counted = Counted {
            status: &status,
            outcomes: &outcomes,
            decisions: &decisions,
            tasks: 3,
            turned_away: 0,
            in_doubt: 2,
            overtaken: 1,
            freed_children: 0,
            unrestored: 0,
            cpu_ns: 1_500_000_000,
            period_ns: 4_000_000,
            lost: 0,
            given_up: 0,
            acting: true,
        };
        let text = render(&counted);
        let text = text.as_str();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("reprieve_migrate_") && value.parse::<f64>().is_ok(), "{line}");
        }
        for expected in [
            "reprieve_migrate_cpu_seconds_total 1.5",
            "reprieve_migrate_decisions_total{why=\"ahead\"} 2",
            "reprieve_migrate_vcpu_gaps_total{vcpu=\"1\",verdict=\"host\"} 7",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected}\n{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("m.prom"), &counted).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
