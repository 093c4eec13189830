//! Replayed recordings against what the recorded runs showed.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, ColumnConstraint};
use reprieve_study::units::significant;
use reprieve_study::{Study, metric, replays};

use super::more::finish_with;
use super::{LEAST_LABEL, Options, clean, empty_table, heading, wrapped};

/// What it came to, and a line for each figure.
pub fn render(text: &mut String, study: &Study, options: &Options) {
    let found = replays::of(study);
    if found.is_empty() {
        return;
    }
    let _ = writeln!(text);
    heading(text, "Replayed: vCPUs are off when those of a recorded run were", options);
    for replay in &found {
        wrapped(text, &format!("{}: ", clean(&replay.condition)), &replay.source, 2, options);
    }
    let within = |id: &str| {
        replays::worst(&found, id).map_or_else(|| "-".into(), |factor| format!("x{}", significant(factor)))
    };
    let (average, p99) = (within(metric::GP_MEAN), within(metric::GP_P99));
    if found.iter().all(|replay| replay.figures.is_empty()) {
        let remark = "Of the recorded runs nothing is known but when their vCPUs were off: there is nothing to compare.";
        return wrapped(text, "", remark, 0, options);
    }
    let sentence =
        format!("Average grace periods are within {average} of those recorded, their p99 within {p99}.");
    wrapped(text, "", &sentence, 0, options);
    let mut out = empty_table(options);
    let header = ["condition", "metric", "recorded", "replayed", "error"];
    out.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for replay in &found {
        for (number, figure) in replay.figures.iter().enumerate() {
            let Some(metric) = metric::find(figure.metric) else { continue };
            let error =
                figure.error().map_or_else(|| "-".into(), |log| format!("x{}", significant(log.exp())));
            out.add_row([
                clean(if number == 0 { &replay.condition } else { "" }).into(),
                metric.label.to_string(),
                metric.unit.show(figure.recorded),
                metric.unit.show(figure.replayed),
                error,
            ]);
        }
    }
    finish_with(text, out, 2, ColumnConstraint::LowerBoundary(LEAST_LABEL));
    let below = "Replayed: median over repetitions. A guest that was set otherwise than the recorded one differs by that, too.";
    wrapped(text, "", below, 0, options);
}
