//! Replayed recordings against what the recorded runs showed, as text; the same for a terminal and a page.

use reprieve_study::units::significant;
use reprieve_study::{Study, metric, replays};

/// The heading.
pub const TITLE: &str = "Replayed: vCPUs are off when those of a recording were";
/// The table's columns.
pub const HEADER: [&str; 5] = ["condition", "metric", "recorded", "replayed", "replayed / recorded"];
/// What stands below the table.
pub const REMARK: &str = "Replayed: median over repetitions. A guest with other settings than the recorded one also differs because of them.";

/// All replays of a study.
#[derive(Debug)]
pub struct Replays {
    /// Conditions, and what each replays.
    pub sources: Vec<(String, String)>,
    /// What it came to.
    pub finding: String,
    /// As [`HEADER`] says; a condition is named once.
    pub rows: Vec<[String; 5]>,
}

/// Those of a study, if it has some.
pub fn of(study: &Study) -> Option<Replays> {
    let found = replays::of(study);
    if found.is_empty() {
        return None;
    }
    let sources = found.iter().map(|replay| (replay.title.clone(), replay.source.clone())).collect();
    let worst = |id: &str| replays::worst(&found, id).map(significant);
    let finding = match (worst(metric::GP_MEAN), worst(metric::GP_P99)) {
        (Some(average), Some(p99)) => format!(
            "Average grace periods are within a factor of {average} of those recorded, their p99 within {p99}."
        ),
        _ => "Nothing is known of grace periods in what was recorded: only when vCPUs were off.".into(),
    };
    let mut rows = Vec::new();
    for replay in &found {
        for (number, figure) in replay.figures.iter().enumerate() {
            let Some(metric) = metric::find(figure.metric) else { continue };
            let name = if number == 0 { replay.title.clone() } else { String::new() };
            let ratio =
                figure.error().map_or_else(|| "-".into(), |log| format!("x{}", significant(log.exp())));
            let [recorded, replayed] =
                [figure.recorded, figure.replayed].map(|value| metric.unit.show(value));
            rows.push([name, metric.label.into(), recorded, replayed, ratio]);
        }
    }
    Some(Replays { sources, finding, rows })
}
