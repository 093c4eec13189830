//! A comparison as cells of text, for terminal and page alike: metrics with a published figure first, then
//! the others, each group in the order of [`metric::ALL`]; metrics without any value left out.

use reprieve_study::comparison::SIGNIFICANT_BELOW;
use reprieve_study::off_times::{self, OffRow};
use reprieve_study::statistics::{self, Estimate};
use reprieve_study::units::significant;
use reprieve_study::{
    Comparison, Conformance, LatencyConformance, Metric, Observation, Record, Row, Study, Verdict, metric,
};

use crate::facts;
use crate::quantity::Spread;

/// Identifiers of the metrics that matter, in the order in which they are shown: those that the scenario names, or its
/// workload's.
pub fn rows(study: &Study) -> Vec<&str> {
    match &study.scenario.observe.rows {
        chosen if !chosen.is_empty() => chosen.iter().map(String::as_str).collect(),
        _ => study.scenario.workload.rows().to_vec(),
    }
}

/// One line of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The metric that is compared.
    pub metric: &'static Metric,
    /// Values under the baseline, `None` when there are none.
    pub baseline: Option<Spread>,
    /// Values under the condition.
    pub treated: Option<Spread>,
    /// Ratio of the medians: `2.18`.
    pub ratio: String,
    /// Its interval: `[1.90, 2.50]`; empty when it has none.
    pub interval: String,
    /// Raw p-value.
    pub p: String,
    /// Whether the p-value adjusted for the whole table is below [`SIGNIFICANT_BELOW`].
    pub significant: bool,
    /// The published figure as printed there.
    pub published: String,
    /// The same as a ratio: `0.333` for -66.7 %.
    pub published_ratio: String,
    /// Ours against the published one.
    pub verdict: Verdict,
}

impl Line {
    /// `None` when the row has no value or names no metric of this program.
    fn of(row: &Row) -> Option<Line> {
        let metric = metric::find(&row.metric)?;
        let (baseline, treated) =
            (Spread::of(metric.unit, &row.baseline), Spread::of(metric.unit, &row.treated));
        if baseline.is_none() && treated.is_none() && row.published.is_none() {
            return None;
        }
        Some(Line {
            metric,
            baseline,
            treated,
            ratio: row.ratio.map_or_else(String::new, |ratio| significant(ratio.value)),
            interval: row.ratio.map_or_else(String::new, interval),
            p: row.p_value.map_or_else(String::new, p_value),
            significant: row.p_holm.is_some_and(|p| p < SIGNIFICANT_BELOW),
            published: row.published.as_ref().map_or_else(String::new, |published| published.printed.clone()),
            published_ratio: row
                .published
                .as_ref()
                .map_or_else(String::new, |published| significant(published.ratio)),
            verdict: row.verdict,
        })
    }
}

fn interval(ratio: Estimate) -> String {
    format!("[{}, {}]", significant(ratio.low), significant(ratio.high))
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".into() } else { format!("{p:.3}") }
}

/// The lines of a comparison, in the order of the table.
pub fn lines(comparison: &Comparison) -> Vec<Line> {
    let (published, others): (Vec<&Row>, Vec<&Row>) =
        comparison.rows.iter().partition(|row| row.published.is_some());
    published.into_iter().chain(others).filter_map(Line::of).collect()
}

/// How many of the published ratios were seen again, in a sentence; `None` when none was published.
pub fn tally(comparison: &Comparison) -> Option<String> {
    let verdicts = || comparison.rows.iter().map(|row| row.verdict);
    let count = |wanted: fn(&Verdict) -> bool| verdicts().filter(wanted).count();
    let all = count(|verdict| *verdict != Verdict::NoReference);
    let parts = [
        (count(Verdict::agrees), "agree in direction and size"),
        (
            count(|v| matches!(v, Verdict::SameDirection { .. }) && !v.agrees()),
            "in the same direction, of another size",
        ),
        (count(|v| matches!(v, Verdict::TooFewRuns { .. })), "undecided for want of runs"),
        (count(|v| *v == Verdict::NoClearEffect), "without a clear effect"),
        (count(|v| *v == Verdict::OppositeDirection), "in the opposite direction"),
        (count(|v| *v == Verdict::NotMeasured), "without a ratio here"),
    ];
    let said: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (all > 0).then(|| format!("Published ratios: {all}; here {}.", said.join(", ")))
}

/// The published ratios that no table of the study has a row for, in a sentence; `None` when there are none.
pub fn unmeasured(study: &Study) -> Option<String> {
    let published = &study.scenario.published;
    let compared = |name: &str| study.comparisons.iter().find(|comparison| comparison.condition == name);
    let mut absent: Vec<&str> = published.ratios.iter().map(|ratio| published.condition_of(ratio)).collect();
    absent.dedup();
    absent.retain(|name| compared(name).is_none());
    match &absent[..] {
        [] => {}
        [one] => {
            return Some(format!(
                "The published ratios are for the condition {one}, which was not compared."
            ));
        }
        many => {
            let many = many.join(", ");
            return Some(format!(
                "The published ratios are for the conditions {many}, which were not compared."
            ));
        }
    }
    let missing = published.ratios.iter().filter(|ratio| {
        compared(published.condition_of(ratio)).and_then(|all| all.row(&ratio.metric)).is_none()
    });
    let said: Vec<String> = missing
        .map(|ratio| {
            let label = metric::find(&ratio.metric).map_or(ratio.metric.as_str(), |metric| metric.label);
            format!("{label} ({})", ratio.printed)
        })
        .collect();
    (!said.is_empty()).then(|| format!("Published but not measured here: {}.", said.join("; ")))
}

/// Says so if the cases differ in nothing that has an effect.
pub fn cases_without_effect(study: &Study) -> Option<String> {
    let groups: Vec<Vec<&Observation>> = study
        .scenario
        .cases
        .keys()
        .map(|case| study.observations.iter().filter(|run| run.case.as_ref() == Some(case)).collect())
        .collect();
    Study::are_one_result(&groups)
        .then(|| format!("All {} cases gave one result: what they set has no effect here.", groups.len()))
}

/// A remark for tables so small that no p-value in them can be low; `None` when p can be below 0.05.
pub fn smallest_p(comparison: &Comparison) -> Option<String> {
    let sizes = comparison.rows.iter().map(|row| (row.baseline.len(), row.treated.len()));
    let (base, treated) = sizes.max_by_key(|(base, treated)| base.min(treated).to_owned())?;
    if base == 0 || treated == 0 {
        return None;
    }
    let smallest = statistics::least_p(treated, base);
    (smallest >= SIGNIFICANT_BELOW).then(|| {
        format!("With {base} and {treated} runs no p-value can be below {smallest:.3}: read the intervals, or repeat more.")
    })
}

/// The same scenario in two records, `b` against `a`.
#[derive(Clone, Debug, PartialEq)]
pub struct Across {
    /// The scenario that both have.
    pub scenario: String,
    /// Conditions that have one name and are two experiments, a line each: comparing them says nothing.
    pub unlike: Vec<String>,
    /// What differs between the two besides the results, a line each.
    pub differences: Vec<String>,
    /// How far the simulator is from real guests, if one of the two was simulated and the other was not.
    pub conformance: Option<Conformance>,
    /// The layer below: how long, and how often, vCPUs are off.
    pub off_times: Vec<OffRow>,
    /// The same of latencies.
    pub latencies: Option<LatencyConformance>,
    /// Otherwise, for each condition that both have: its rows as a comparison, with `a` as the baseline. (A simulator's
    /// repetitions vary otherwise than real ones: a test of one against the other would say nothing.)
    pub conditions: Vec<Comparison>,
}

/// Compares every condition of every scenario that both records have.
pub fn across(a: &Record, b: &Record) -> Vec<Across> {
    let pairs = a.studies.iter().filter_map(|first| {
        let second = b.studies.iter().find(|study| study.scenario.name == first.scenario.name)?;
        Some((first, second))
    });
    pairs.map(|(first, second)| one_across(first, second)).collect()
}

fn one_across(first: &Study, second: &Study) -> Across {
    let conformance = Conformance::between(first, second);
    let ran = |study: &Study, name: &str| study.runs_of(name).next().is_some();
    let latencies = LatencyConformance::between(first, second);
    let are_alike = conformance.is_none() && latencies.is_none();
    let names = first.scenario.conditions.keys().filter(|_| are_alike);
    let common = names.filter(|name| ran(first, name) && ran(second, name));
    Across {
        scenario: first.scenario.name.clone(),
        unlike: unlike(first, second),
        differences: differences(first, second),
        conditions: common.map(|name| between(first, second, name)).collect(),
        off_times: off_times::between(first, second),
        conformance,
        latencies,
    }
}

fn between(first: &Study, second: &Study, condition: &str) -> Comparison {
    let values = |study: &Study, metric: &str| -> Vec<f64> {
        study.runs_of(condition).filter_map(|run| run.metrics.get(metric).copied()).collect()
    };
    let seed = first.scenario.run.seed;
    let row = |metric: &Metric| {
        let (base, treated) = (values(first, metric.id), values(second, metric.id));
        (!base.is_empty() || !treated.is_empty()).then(|| Row::new(metric.id, base, treated, None, seed))
    };
    let mut rows: Vec<Row> = metric::ALL.iter().filter_map(row).collect();
    let tested: Vec<f64> = rows.iter().filter_map(|row| row.p_value).collect();
    let mut adjusted = statistics::holm(&tested).into_iter();
    for row in rows.iter_mut().filter(|row| row.p_value.is_some()) {
        row.p_holm = adjusted.next();
    }
    Comparison { condition: condition.into(), baseline: condition.into(), rows }
}

fn unlike(first: &Study, second: &Study) -> Vec<String> {
    let kind = |study: &Study| facts::workload(&study.scenario.workload);
    let kinds = [first, second].map(|study| std::mem::discriminant(&study.scenario.workload));
    let workload = (kinds[0] != kinds[1]).then(|| format!("workload: {} | {}", kind(first), kind(second)));
    let ran = |study: &Study, name: &str| study.runs_of(name).next().is_some();
    let conditions = first.scenario.conditions.iter().filter_map(|(name, condition)| {
        let other = second.scenario.conditions.get(name)?;
        let what = [condition, other].map(facts::disturbance);
        let is_unlike = what[0] != what[1] && ran(first, name) && ran(second, name);
        is_unlike.then(|| format!("{name}: {} | {}", what[0], what[1]))
    });
    workload.into_iter().chain(conditions).collect()
}

fn differences(first: &Study, second: &Study) -> Vec<String> {
    let (old, new) = (facts::of(first), facts::of(second));
    let mut lines = Vec::new();
    for fact in old.iter().filter(|fact| fact.is_setting) {
        let other = new.iter().find(|other| other.is_setting && other.name == fact.name);
        let other = other.map_or("-", |other| other.value.as_str());
        if other != fact.value {
            lines.push(format!("{}: {} | {other}", fact.name, fact.value));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(base: Vec<f64>, treated: Vec<f64>) -> Comparison {
        Comparison {
            condition: "c".into(),
            baseline: "b".into(),
            rows: vec![Row::new(metric::GP_MEAN, base, treated, None, 1)],
        }
    }

    #[test]
    fn says_when_repetitions_cannot_show_an_effect() {
        let few = smallest_p(&comparison(vec![1.0; 3], vec![2.0; 3])).unwrap();
        assert!(few.contains("below 0.100"), "{few}");
        assert_eq!(smallest_p(&comparison(vec![1.0; 6], vec![2.0; 6])), None);
        assert_eq!(smallest_p(&comparison(vec![], vec![2.0; 6])), None);
    }

    #[test]
    fn a_p_value_is_never_written_as_zero() {
        assert_eq!((p_value(0.00005).as_str(), p_value(0.1).as_str()), ("<0.001", "0.100"));
    }

    #[test]
    fn unknown_metrics_of_a_foreign_record_are_left_out() {
        let mut foreign = comparison(vec![1.0], vec![2.0]);
        foreign.rows[0].metric = "no_such_metric".into();
        assert_eq!(lines(&foreign), vec![]);
    }
}
