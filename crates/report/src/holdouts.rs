//! Which vCPU ended how many grace periods as their last holdout, where that was counted.

use reprieve_study::Study;
use reprieve_study::units::significant;

/// One condition, all its runs together.
#[derive(Clone, Debug, PartialEq)]
pub struct Holdouts {
    /// Name of the condition.
    pub condition: String,
    /// For each vCPU its share of the grace periods, 0 to 1.
    pub shares: Vec<f64>,
}

/// The conditions that have runs in which it was counted, but for those that only serve to attribute a loss.
pub fn of(study: &Study) -> Vec<Holdouts> {
    let conditions = study.scenario.conditions.keys().filter(|name| !study.is_part(name));
    conditions.filter_map(|name| one(study, name)).collect()
}

fn one(study: &Study, condition: &str) -> Option<Holdouts> {
    let mut counts: Vec<u64> = Vec::new();
    for run in study.runs_of(condition) {
        counts.resize(counts.len().max(run.holdouts.len()), 0);
        counts.iter_mut().zip(&run.holdouts).for_each(|(sum, count)| *sum += count);
    }
    let all: u64 = counts.iter().sum();
    let shares = counts.iter().map(|count| *count as f64 / all as f64).collect();
    (all > 0).then(|| Holdouts { condition: condition.into(), shares })
}

/// For each condition the vCPU that was it most often, in a line; empty when nothing was counted.
pub fn most_often(study: &Study) -> String {
    let said = |one: &Holdouts| {
        let (vcpu, share) = one.shares.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        Some(format!("{} vCPU {vcpu} ({} %)", one.condition, significant(share * 100.0)))
    };
    let parts: Vec<String> = of(study).iter().filter_map(said).collect();
    if parts.is_empty() { String::new() } else { format!("most often: {}", parts.join("; ")) }
}
