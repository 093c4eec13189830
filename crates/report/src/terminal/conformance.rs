//! The simulator against real guests.

use std::fmt::Write;

use comfy_table::{Attribute, Cell};
use reprieve_study::conformance::{Conformance, METRICS, Row};
use reprieve_study::metric;
use reprieve_study::units::significant;

use super::more::finish;
use super::{Options, clean, empty_table, heading, wrapped};

const HEADER: [&str; 5] = ["condition", "metric", "real guests", "simulator", "error"];

/// A row for each condition and metric, and the median error.
pub fn render(text: &mut String, conformance: &Conformance, options: &Options) {
    let _ = writeln!(text);
    heading(text, "The simulator against real guests", options);
    if conformance.rows.is_empty() {
        return wrapped(text, "", "Nothing to compare: no condition has runs of both.", 0, options);
    }
    let mut out = empty_table(options);
    out.set_header(HEADER.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    let mut above = "";
    for row in &conformance.rows {
        // The condition is named once.
        let name = if row.condition == above { "" } else { &row.condition };
        above = &row.condition;
        out.add_row(cells(row, name));
    }
    finish(text, out, 2);
    wrapped(
        text,
        "",
        "Medians over repetitions; the simulator's error is relative to the real guests'.",
        0,
        options,
    );
    wrapped(text, "", &summary(conformance), 0, options);
}

fn cells(row: &Row, name: &str) -> [String; 5] {
    let known = metric::find(row.metric);
    let show = |value: f64| known.map_or_else(String::new, |metric| metric.unit.show(value));
    let sign = |error: f64| if error < 0.0 { "-" } else { "+" };
    [
        clean(name).into(),
        label(row.metric).into(),
        show(row.real),
        show(row.simulated),
        row.error().map_or_else(|| "-".into(), |error| format!("{}{}", sign(error), percent(error))),
    ]
}

fn summary(conformance: &Conformance) -> String {
    let Some(all) = conformance.median_error(None) else {
        return "Only the baseline was compared, which the simulator is calibrated on.".into();
    };
    let of = |metric| Some(format!("{} {}", label(metric), percent(conformance.median_error(Some(metric))?)));
    let each: Vec<String> = METRICS.into_iter().filter_map(of).collect();
    format!(
        "Median error: {} ({}), without {}: the simulator is calibrated on baselines.",
        percent(all),
        each.join("; "),
        conformance.baseline
    )
}

/// Magnitude of a share.
fn percent(share: f64) -> String {
    format!("{} %", significant(share.abs() * 100.0))
}

fn label(id: &'static str) -> &'static str {
    metric::find(id).map_or(id, |metric| metric.label)
}
