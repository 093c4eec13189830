//! Sweeps as cells of text, for terminal and page alike: a row for each value and condition.

use reprieve_study::scenario::{Setting, Sweep};
use reprieve_study::swept::Curve;
use reprieve_study::{Metric, Observation, Study, SweepPoint, metric};

use crate::quantity::Spread;

/// What a sweep's table shows, where it was measured.
const SHOWN: [(&str, &str); 20] = [
    (metric::IO_RATE, "read and written"),
    (metric::IO_INACTIVE, "inactive"),
    (metric::IO_INACTIVE_SHARE, "of the window"),
    (metric::RIVAL_RATE, "a rival's"),
    (metric::JAIN, "Jain's index"),
    (metric::LATENCY_P50, "p50"),
    (metric::LATENCY_P90, "p90"),
    (metric::LATENCY_P99, "p99"),
    (metric::LATENCY_P999, "p99.9"),
    (metric::LATENCY_COUNT, "of"),
    (metric::LATE, "stalls"),
    (metric::SPINNER_CPU, "a spinner's CPU"),
    (metric::DELAY_P50, "delay p50"),
    (metric::DELAY_MEAN, "delay average"),
    (metric::DELAY_P99, "delay p99"),
    (metric::LOOKUP_COST, "look-up CPU"),
    (metric::GP_MEAN, "GP average"),
    (metric::FOOTPRINT_PEAK, "footprint peak"),
    (metric::BACKLOG_PEAK, "backlog peak"),
    (metric::THROUGHPUT, "throughput"),
];

/// One sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Swept {
    /// What is varied, with its unit.
    pub title: String,
    /// Heading of the values: the key's last word.
    pub value_name: String,
    /// Whether it was run under several conditions.
    pub has_conditions: bool,
    /// Headings of the metrics.
    pub names: Vec<&'static str>,
    /// In the order of the values.
    pub lines: Vec<Line>,
    /// What is to be said beneath; empty for nothing.
    pub remark: String,
}

/// One value under one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The value; empty when it is that of the line above.
    pub value: String,
    /// The condition.
    pub condition: String,
    /// One for each metric.
    pub cells: Vec<Option<Spread>>,
}

/// The sweeps of a study that have runs.
pub fn of(study: &Study) -> Vec<Swept> {
    study.scenario.sweeps.iter().filter_map(|(name, sweep)| one(study, name, sweep)).collect()
}

/// What a sweep varies, with its unit, for headings.
pub fn title(name: &str, sweep: &Sweep) -> String {
    let label = if sweep.label.is_empty() { name } else { &sweep.label };
    format!("{label} ({})", if sweep.unit.is_empty() { &sweep.key } else { &sweep.unit })
}

fn one(study: &Study, name: &str, sweep: &Sweep) -> Option<Swept> {
    let measured = SHOWN.iter().filter_map(|(id, short)| {
        let curves = study.curves(name, id);
        (!curves.is_empty()).then_some((metric::find(id)?, *short, curves))
    });
    let measured: Vec<(&'static Metric, &str, Vec<Curve>)> = measured.collect();
    let conditions: Vec<&str> = study.scenario.swept(sweep).collect();
    let mut lines: Vec<Line> = Vec::new();
    for value in &sweep.values {
        let mut shown = value.to_string();
        for condition in &conditions {
            let cells: Vec<Option<Spread>> = measured
                .iter()
                .map(|(metric, _, curves)| {
                    Spread::of(metric.unit, values(curves, condition, value.number()?)?)
                })
                .collect();
            if cells.iter().any(Option::is_some) {
                lines.push(Line {
                    value: std::mem::take(&mut shown),
                    condition: condition.to_string(),
                    cells,
                });
            }
        }
    }
    let last_word = sweep.key.rsplit('.').next().unwrap_or_default();
    (!lines.is_empty()).then(|| Swept {
        title: format!("Sweep: {}{}", title(name, sweep), under(&conditions)),
        value_name: last_word.into(),
        has_conditions: conditions.len() > 1,
        names: measured.iter().map(|(_, short, _)| *short).collect(),
        lines,
        remark: remark(study, name, sweep),
    })
}

/// Warns of a key that changed nothing.
fn remark(study: &Study, name: &str, sweep: &Sweep) -> String {
    let of = |value: &Setting| -> Vec<&Observation> {
        let point = value.number().map(|value| SweepPoint { sweep: name.into(), value });
        study.observations.iter().filter(|run| run.sweep.is_some() && run.sweep == point).collect()
    };
    let groups: Vec<Vec<&Observation>> = sweep.values.iter().map(of).collect();
    match Study::are_one_result(&groups) {
        true => format!("All {} values gave one result: {} has no effect here.", groups.len(), sweep.key),
        false => String::new(),
    }
}

fn under(conditions: &[&str]) -> String {
    match conditions {
        [condition] => format!(", under {condition}"),
        _ => String::new(),
    }
}

fn values<'a>(curves: &'a [Curve], condition: &str, at: f64) -> Option<&'a [f64]> {
    let curve = curves.iter().find(|curve| curve.condition == condition)?;
    Some(&curve.points.iter().find(|point| point.at == at)?.values)
}
