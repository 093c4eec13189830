//! The answer first: what a study found, in a few sentences made from its data. Terminal, page and record show the same ones.
//!
//! A change is claimed only if its interval excludes "no change" and there are enough runs for a test to tell.

use reprieve_study::comparison::SIGNIFICANT_BELOW;
use reprieve_study::observation::Standing;
use reprieve_study::statistics::{self, Estimate};
use reprieve_study::units::significant;
use reprieve_study::{Comparison, Row, Study, metric};

use crate::table;

/// Conditions that get a sentence of their own: those that change most.
const TOLD: usize = 2;
/// Changes that a sentence has at most.
const CHANGES: usize = 3;
/// A baseline whose vCPUs wanted so many times the CPU time that they got was not undisturbed.
const STARVED: f64 = 1.2;

/// What a metric's change is called: before the factor, and after it.
const WORDS: [(&str, &str, &str); 9] = [
    (metric::GP_MEAN, "grace periods lasted", "as long on average"),
    (metric::GP_P99, "the longest hundredth of them", "as long"),
    (metric::FOOTPRINT_PEAK, "memory in use peaked", "as high"),
    (metric::BACKLOG_PEAK, "callbacks that wait peaked", "as high"),
    (metric::SYNC_MEAN, "synchronize_rcu() took", "as long"),
    (metric::THROUGHPUT, "throughput was", "the baseline's"),
    (metric::LATENCY_P99, "latency at p99 was", "as long"),
    (metric::DELAY_P50, "half of the deleted memory waited", "as long"),
    (metric::IO_RATE, "the application read and wrote", "as fast"),
];

/// The sentences; none for a study whose tables are not comparisons.
pub fn of(study: &Study) -> Vec<String> {
    let compared: Vec<&Comparison> =
        study.comparisons.iter().filter(|comparison| !study.is_part(&comparison.condition)).collect();
    let mut sentences: Vec<String> = disturbed(study).into_iter().collect();
    let told = most_changed(&compared);
    for comparison in &told {
        sentences.push(found(study, comparison));
        sentences.extend(table::tally(comparison));
    }
    if compared.len() > told.len() && !told.is_empty() {
        sentences.push(format!("Of {} conditions these change most; all are below.", compared.len()));
    }
    sentences
}

/// The study in a sentence: what the condition whose effects were published does, or else the first one.
pub fn short(study: &Study) -> Option<String> {
    let published = &study.scenario.published.condition;
    let wholes = || study.comparisons.iter().filter(|comparison| !study.is_part(&comparison.condition));
    let comparison =
        wholes().find(|comparison| comparison.condition == *published).or_else(|| wholes().next())?;
    Some(format!("{}, {}", study.scenario.name, found(study, comparison)))
}

/// The conditions that change most, in their order.
fn most_changed<'a>(compared: &[&'a Comparison]) -> Vec<&'a Comparison> {
    let change = |comparison: &Comparison| {
        let first = WORDS.iter().find_map(|(id, ..)| comparison.row(id)?.ratio);
        first.map_or(0.0, |ratio| ratio.value.ln().abs())
    };
    let mut order: Vec<usize> = (0..compared.len()).collect();
    order.sort_by(|a, b| change(compared[*b]).total_cmp(&change(compared[*a])));
    order.truncate(TOLD);
    order.sort_unstable();
    order.into_iter().map(|index| compared[index]).collect()
}

/// One condition.
fn found(study: &Study, comparison: &Comparison) -> String {
    let label = study.scenario.conditions.get(&comparison.condition).map_or("", |condition| &condition.label);
    let name = match label {
        "" => comparison.condition.clone(),
        label => format!("{} ({label})", comparison.condition),
    };
    let rows = || WORDS.iter().filter_map(|word| Some((word, comparison.row(word.0)?)));
    let clear: Vec<String> =
        rows().filter_map(|((_, before, after), row)| change(row, before, after)).take(CHANGES).collect();
    if clear.is_empty() && rows().all(|(_, row)| !has_enough_runs(row)) {
        return format!("{name}: too few runs to tell; --repeat 10.");
    }
    if clear.is_empty() {
        return format!("{name}: no clear change.");
    }
    format!("{name}: {}.", clear.join("; "))
}

/// A clear change, in words.
fn change(row: &Row, before: &str, after: &str) -> Option<String> {
    let Estimate { value, low, high, .. } = row.ratio?;
    let is_clear = (low > 1.0 || high < 1.0) && has_enough_runs(row);
    is_clear.then(|| {
        let (low, high) = (significant(low), significant(high));
        format!("{before} {} times {after} (95 %: {low} to {high})", significant(value))
    })
}

fn has_enough_runs(row: &Row) -> bool {
    statistics::least_p(row.treated.len(), row.baseline.len()) < SIGNIFICANT_BELOW
}

/// A warning about what else used the machine.
fn disturbed(study: &Study) -> Option<String> {
    let counted = || study.observations.iter().filter(|run| run.standing.counts());
    let kept = counted().filter(|run| run.standing == Standing::Kept).count();
    let baseline = study.scenario.baseline();
    let wanted: Vec<f64> =
        study.runs_of(baseline).filter_map(|run| run.metrics.get(metric::OVERCOMMIT).copied()).collect();
    let starved = statistics::median(&wanted).filter(|ratio| *ratio > STARVED && !study.is_simulated());
    let got = starved.map(|ratio| {
        format!(
            "the vCPUs of {baseline} got {} % of the CPU time that they wanted",
            significant(100.0 / ratio)
        )
    });
    let busy = (kept > 0).then(|| format!("other programs disturbed {kept} of {} runs", counted().count()));
    let said: Vec<String> = [busy, got].into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("Do not quote this: {}.", said.join(", and ")))
}
