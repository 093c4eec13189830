//! How much CPU time the host really gave the vCPUs.

use reprieve_study::observation::{Observation, VcpuTime};
use reprieve_study::statistics;
use reprieve_study::units::significant;

/// Up to this many vCPUs are listed one by one.
const LISTED: usize = 4;

/// Medians over the runs under one condition: of each vCPU, or of the average and the worst one where there are many.
/// `asked` is the overcommit that the condition asks for, 0 for none.
pub fn got(runs: &[&Observation], asked: f64) -> String {
    let vcpus = runs.iter().map(|run| run.provenance.vcpus.len()).max().unwrap_or(0);
    if vcpus > LISTED {
        return got_together(runs, asked);
    }
    let each = (0..vcpus).filter_map(|vcpu| {
        let of_runs = runs.iter().filter_map(|run| Some(Got::of(run, *run.provenance.vcpus.get(vcpu)?)));
        let (share, overcommit) = Got::median(of_runs)?;
        Some(format!("vCPU {vcpu} ran {share} % of the time, overcommit {overcommit}"))
    });
    each.collect::<Vec<_>>().join("; ")
}

fn got_together(runs: &[&Observation], asked: f64) -> String {
    let of_run = |run: &&Observation| -> Vec<Got> {
        run.provenance.vcpus.iter().map(|time| Got::of(run, *time)).collect()
    };
    let of_runs: Vec<Vec<Got>> = runs.iter().map(of_run).filter(|vcpus| !vcpus.is_empty()).collect();
    let average = Got::median(of_runs.iter().map(|vcpus| Got::average(vcpus)));
    let worst = Got::median(
        of_runs
            .iter()
            .filter_map(|vcpus| vcpus.iter().copied().max_by(|a, b| a.overcommit.total_cmp(&b.overcommit))),
    );
    let (Some(average), Some(worst)) = (average, worst) else { return String::new() };
    let asked = if asked > 0.0 { format!("; asked {asked}") } else { String::new() };
    format!(
        "the average vCPU ran {} % of the time, overcommit {}; the worst in a run {} %, {}{asked}",
        average.0, average.1, worst.0, worst.1
    )
}

/// What one vCPU got in one run.
#[derive(Clone, Copy)]
struct Got {
    /// The part of the window in which it ran, 0 to 1.
    share: f64,
    /// CPU time wanted over CPU time received.
    overcommit: f64,
}

impl Got {
    fn of(run: &Observation, time: VcpuTime) -> Got {
        let share = time.run_ns as f64 / run.provenance.window_ns.max(1) as f64;
        // A vCPU that never ran and never waited had nothing to do.
        let unrun = || if time.delay_ns == 0 { 1.0 } else { f64::INFINITY };
        Got { share, overcommit: time.overcommit().unwrap_or_else(unrun) }
    }

    fn average(vcpus: &[Got]) -> Got {
        let mean = |of: fn(&Got) -> f64| vcpus.iter().map(of).sum::<f64>() / vcpus.len() as f64;
        Got { share: mean(|got| got.share), overcommit: mean(|got| got.overcommit) }
    }

    /// Median share, in percent, and median overcommit, as text; `None` without runs.
    fn median(runs: impl Iterator<Item = Got>) -> Option<(String, String)> {
        let (shares, overcommits): (Vec<f64>, Vec<f64>) =
            runs.map(|got| (got.share * 100.0, got.overcommit)).unzip();
        Some((significant(statistics::median(&shares)?), significant(statistics::median(&overcommits)?)))
    }
}
