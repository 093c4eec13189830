//! The answer first: what a study found, in a few sentences made from its data. Terminal, page and record show the same ones.
//!
//! A change is claimed only if its interval excludes "no change" and there are enough runs for a test to tell.

use reprieve_study::comparison::{NO_EFFECT, SIGNIFICANT_BELOW};
use reprieve_study::observation::Standing;
use reprieve_study::statistics::{self, Estimate};
use reprieve_study::units::significant;
use reprieve_study::{Comparison, Condition, Row, Study, metric};

use crate::{facts, recovery, stimuli, table};

/// Conditions that get a sentence of their own.
const TOLD: usize = 2;
/// Changes that a sentence has at most: the average grace period's, and the largest.
const CHANGES: usize = 3;
/// Above this ratio of wanted to received CPU time an undisturbed baseline counts as disturbed.
const STARVED: f64 = 1.2;
/// A study of which more than this share of runs was disturbed should not be quoted.
const DISTURBED: f64 = 0.2;

/// Smaller ratios are put as fractions: 1/125000 instead of 0.000008 times.
const READABLE: f64 = 0.01;

/// How a change of a metric is put: before the factor, and after it.
const WORDS: [(&str, &str, &str); 9] = [
    (metric::GP_MEAN, "grace periods lasted", "as long on average"),
    (metric::GP_P99, "the 99th percentile of grace periods was", "as long"),
    (metric::FOOTPRINT_PEAK, "memory in use peaked", "as high"),
    (metric::BACKLOG_PEAK, "the backlog of callbacks peaked", "as high"),
    (metric::SYNC_MEAN, "synchronize_rcu() took", "as long"),
    (metric::LATENCY_P99, "the 99th percentile of latency was", "as long"),
    (metric::DELAY_P50, "the median delay from delete to free was", "as long"),
    (metric::IO_RATE, "the application read and wrote", "as fast"),
    (metric::THROUGHPUT, "throughput was", "the baseline's"),
];

/// The sentences; none for a study whose tables are not comparisons.
pub fn of(study: &Study) -> Vec<String> {
    if stimuli::is_of(study) {
        return disturbed(study).into_iter().chain(stimuli::sentences(study)).collect();
    }
    if let Some(found) = study.recovery() {
        return disturbed(study).into_iter().chain(recovery::sentences(&found)).collect();
    }
    // Cases of I/O are compared by ratios between conditions that their scenario names.
    if !study.scenario.cases.is_empty() && study.scenario.workload.io().is_none() {
        return of_cases(study);
    }
    let compared: Vec<&Comparison> = wholes(study).collect();
    let mut sentences: Vec<String> = disturbed(study).into_iter().collect();
    let told = most_changed(study, &compared);
    for comparison in &told {
        sentences.extend(found(study, comparison));
        sentences.extend(table::tally(comparison));
    }
    if compared.len() > told.len() && !told.is_empty() {
        sentences.push(format!("The tables show all {} conditions.", compared.len()));
    }
    sentences
}

/// The cases whose conditions change most, against the baselines of these cases.
fn of_cases(study: &Study) -> Vec<String> {
    let cases = study.of_cases();
    let mut found: Vec<(f64, usize, String)> = Vec::new();
    for (case, study) in &cases {
        let compared: Vec<&Comparison> = wholes(study).collect();
        for comparison in most_changed(study, &compared) {
            let size = changes(comparison).iter().map(Change::size).fold(0.0, f64::max);
            found.extend(
                self::found(study, comparison).map(|said| (size, found.len(), format!("{case}, {said}"))),
            );
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(TOLD);
    found.sort_by_key(|(_, place, _)| *place);
    let told = found.into_iter().map(|(.., said)| said);
    disturbed(study).into_iter().chain(told).chain(table::cases_without_effect(study)).collect()
}

/// The study in a sentence: what the condition whose effects were published does, or else the one that changes most.
pub fn short(study: &Study) -> Option<String> {
    let compared: Vec<&Comparison> = wholes(study).collect();
    let published = compared.iter().find(|comparison| is_published(study, comparison)).copied();
    let comparison = published.or_else(|| most_changed(study, &compared).first().copied())?;
    Some(format!("{}, {}", study.scenario.name, found(study, comparison)?))
}

fn wholes(study: &Study) -> impl Iterator<Item = &Comparison> {
    study.comparisons.iter().filter(|comparison| !study.is_part(&comparison.condition))
}

fn is_published(study: &Study, comparison: &Comparison) -> bool {
    study.scenario.published.condition == comparison.condition
}

fn has_remedies(study: &Study, comparison: &Comparison) -> bool {
    let condition = study.scenario.conditions.get(&comparison.condition);
    condition.is_some_and(|condition| !condition.remedies.is_empty())
}

/// The condition whose effects were published, those with remedies, and those that change most, in their order.
fn most_changed<'a>(study: &Study, compared: &[&'a Comparison]) -> Vec<&'a Comparison> {
    let change = |comparison: &Comparison| {
        if is_published(study, comparison) || has_remedies(study, comparison) {
            return f64::INFINITY;
        }
        changes(comparison).iter().map(Change::size).fold(0.0, f64::max)
    };
    let mut order: Vec<usize> = (0..compared.len()).collect();
    order.sort_by(|a, b| change(compared[*b]).total_cmp(&change(compared[*a])));
    order.truncate(TOLD);
    order.sort_unstable();
    order.into_iter().map(|index| compared[index]).collect()
}

/// One condition; nothing if it was measured by none of these metrics.
fn found(study: &Study, comparison: &Comparison) -> Option<String> {
    let condition = study.scenario.conditions.get(&comparison.condition);
    let does = condition.map(facts::disturbance).filter(|does| *does != comparison.condition);
    let name = match does {
        None => comparison.condition.clone(),
        Some(does) => format!("{} ({does})", comparison.condition),
    };
    let rows: Vec<&Row> = WORDS.iter().filter_map(|(id, ..)| comparison.row(id)).collect();
    if rows.is_empty() {
        return None;
    }
    let enough = rows.iter().any(|row| has_enough_runs(row));
    let mut seen = changes(comparison);
    // The average grace period first, if it changed: it is what people ask for.
    let others = |change: &Change| !change.of(metric::GP_MEAN);
    seen.sort_by(|a, b| others(a).cmp(&others(b)).then(b.size().total_cmp(&a.size())));
    seen.truncate(CHANGES);
    seen.sort_by_key(|change| change.place);
    let said: Vec<String> = seen.iter().map(Change::words_with_interval).collect();
    let said = if said.is_empty() { "no clear change".to_string() } else { said.join("; ") };
    Some(match enough {
        true => format!("{name}: {said}."),
        false => format!("{name}: too few runs for a test (--repeat 10); in these, {said}."),
    })
}

/// A change that its interval carries.
struct Change {
    /// Its place among [`WORDS`].
    place: usize,
    ratio: Estimate,
}

impl Change {
    fn of(&self, metric: &str) -> bool {
        WORDS[self.place].0 == metric
    }

    /// Magnitude of the logarithm of its ratio.
    fn size(&self) -> f64 {
        self.ratio.value.ln().abs()
    }

    fn words(&self) -> String {
        let (_, before, after) = WORDS[self.place];
        match self.ratio.value {
            small if small < READABLE => format!("{before} 1/{} {after}", significant(1.0 / small)),
            ratio => format!("{before} {} times {after}", significant(ratio)),
        }
    }

    fn words_with_interval(&self) -> String {
        let Estimate { low, high, .. } = self.ratio;
        let show = |ratio: f64| match self.ratio.value < READABLE {
            true => format!("1/{}", significant(1.0 / ratio)),
            false => significant(ratio),
        };
        format!("{} (95 %: {} to {})", self.words(), show(low), show(high))
    }
}

/// Those of a condition. Where some metrics have enough runs for a test, only those count.
fn changes(comparison: &Comparison) -> Vec<Change> {
    let rows = || WORDS.iter().enumerate().filter_map(|(place, word)| Some((place, comparison.row(word.0)?)));
    let enough = rows().any(|(_, row)| has_enough_runs(row));
    let change = |(place, row): (usize, &Row)| {
        let change = Change { place, ratio: row.ratio? };
        let is_clear = change.ratio.low > NO_EFFECT || change.ratio.high < 1.0 / NO_EFFECT;
        (is_clear && change.size().is_finite() && (!enough || has_enough_runs(row))).then_some(change)
    };
    rows().filter_map(change).collect()
}

/// The condition that changes a metric most, as the title of a figure; `None` unless there are enough runs for a test.
pub fn largest(study: &Study, metric: &str) -> Option<String> {
    let certain = wholes(study).filter(|comparison| comparison.row(metric).is_some_and(has_enough_runs));
    let changed = certain.filter_map(|comparison| {
        Some((comparison, changes(comparison).into_iter().find(|change| change.of(metric))?))
    });
    let (comparison, change) = changed.max_by(|(_, a), (_, b)| a.size().total_cmp(&b.size()))?;
    Some(capital(&format!("{} under {}", change.words(), comparison.condition)))
}

/// The largest change under one condition, as the title of a figure; `None` unless there are enough runs for a test.
pub fn under(study: &Study, condition: &str) -> Option<String> {
    let comparison = wholes(study).find(|comparison| comparison.condition == condition)?;
    let certain = changes(comparison)
        .into_iter()
        .filter(|change| comparison.row(WORDS[change.place].0).is_some_and(has_enough_runs));
    let change = certain.max_by(|a, b| a.size().total_cmp(&b.size()))?;
    Some(format!("{condition}: {}", change.words()))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn has_enough_runs(row: &Row) -> bool {
    statistics::least_p(row.treated.len(), row.baseline.len()) < SIGNIFICANT_BELOW
}

/// A warning about what else used the machine.
fn disturbed(study: &Study) -> Option<String> {
    let counted = study.observations.iter().filter(|run| run.standing.counts()).count();
    let kept = study.observations.iter().filter(|run| run.standing == Standing::Kept).count();
    let baseline = study.scenario.baseline();
    let undisturbed = study.scenario.conditions.get(baseline).is_some_and(Condition::is_undisturbed);
    let wanted: Vec<f64> =
        study.runs_of(baseline).filter_map(|run| run.metrics.get(metric::OVERCOMMIT).copied()).collect();
    let starved = statistics::median(&wanted)
        .filter(|ratio| *ratio > STARVED && undisturbed && !study.is_simulated())
        .map(|ratio| {
            format!(
                "a vCPU of {baseline} got {} % of the CPU time that it wanted",
                significant(100.0 / ratio)
            )
        });
    let busy = (kept > 0).then(|| format!("other programs disturbed {kept} of {counted} runs"));
    let grave = starved.is_some() || kept as f64 > DISTURBED * counted as f64;
    let said: Vec<String> = [busy, starved].into_iter().flatten().collect();
    let verdict = if grave { "Do not quote this" } else { "Disturbed in part" };
    (!said.is_empty()).then(|| format!("{verdict}: {}.", said.join(", and ")))
}
