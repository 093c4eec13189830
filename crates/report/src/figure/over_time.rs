//! Values over the window of one run: one line for each condition, or two panels that share the time axis.
//! Shown is of each condition the first run that counts and still has the timeline (a record on disk keeps
//! one run's); the caption names its repetition.

use maud::html;
use reprieve_study::metric::Unit;
use reprieve_study::observation::{BACKLOG, FOOTPRINT, GP_OVER_TIME, Observation, UNUSABLE};
use reprieve_study::{Study, Timeline, metric};

use super::axis::{Axis, End};
use super::canvas::{LINE, Panel, RIGHT_MARGIN, left_of, legend};
use super::{Figure, Shows, legend_name, series};
use crate::headline;

/// More points than this would be closer than half a pixel.
const POINTS: usize = 1_200;
const HEIGHT: f64 = 210.0;
const PANEL_HEIGHT: f64 = 130.0;
/// From one panel's lower edge to the next one's upper edge: room for a title.
const BETWEEN: f64 = 34.0;
/// Room under the last panel for tick labels and the axis' title.
const FOOT: f64 = 2.0 * LINE + 10.0;

/// Memory footprint over time, one line for each condition.
pub fn footprint(study: &Study) -> Option<Figure> {
    let finding = headline::largest(study, metric::FOOTPRINT_PEAK);
    lines(study, FOOTPRINT, Unit::Bytes, ("footprint", "Memory footprint"), finding)
}

/// Callbacks that wait for a grace period, over time, one line for each condition.
pub fn backlog(study: &Study) -> Option<Figure> {
    let finding = headline::largest(study, metric::BACKLOG_PEAK);
    lines(study, BACKLOG, Unit::Count, ("backlog", "Callback backlog"), finding)
}

/// External fragmentation over time, one line for each condition.
pub fn unusable(study: &Study) -> Option<Figure> {
    lines(study, UNUSABLE, Unit::Index, ("unusable-index", "Unusable free space index, order 9"), None)
}

fn lines(
    study: &Study,
    key: &str,
    unit: Unit,
    (slug, name): (&str, &str),
    finding: Option<String>,
) -> Option<Figure> {
    let shown: Vec<(usize, &str, &Observation, Timeline)> = series(study)
        .filter_map(|(index, condition)| {
            let (run, timeline) = first_with(study, condition, key)?;
            Some((index, condition, run, timeline))
        })
        .collect();
    if shown.is_empty() {
        return None;
    }
    let time = time_axis(shown.iter().map(|(.., timeline)| timeline));
    let value = value_axis(name, unit, shown.iter().map(|(.., timeline)| timeline));
    let names: Vec<(usize, String)> =
        shown.iter().map(|(index, name, ..)| (*index, legend_name(name))).collect();
    let (legend, legend_height) = legend(LINE, &names);
    let panel = Panel {
        left: left_of(&[&value]),
        top: LINE + legend_height + LINE,
        height: HEIGHT,
        right: RIGHT_MARGIN,
        x: &time,
        y: &value,
    };
    let body = html! {
        (legend)
        (panel.frame(true))
        @for (index, _, _, timeline) in &shown { (panel.curve(*index, timeline)) }
    };
    let runs: Vec<&Observation> = shown.iter().map(|(_, _, run, _)| *run).collect();
    Some(Figure::new(
        study,
        slug,
        Shows { what: format!("{name} over time"), finding },
        &shown_runs(study, &runs),
        (body, panel.bottom() + FOOT),
    ))
}

/// Memory footprint above, duration of each grace period (drawn at its end) below, under one condition. All
/// conditions of a study get the same axes, so that their figures can be compared.
pub fn footprint_and_gp(study: &Study, condition: &str) -> Option<Figure> {
    let (index, _) = series(study).find(|(_, name)| *name == condition)?;
    let (run, memory) = first_with(study, condition, FOOTPRINT)?;
    let (_, gp) = first_with(study, condition, GP_OVER_TIME)?;
    let of_all = |key: &'static str| -> Vec<Timeline> {
        series(study).filter_map(|(_, name)| Some(first_with(study, name, key)?.1)).collect()
    };
    let (all_memory, all_gp) = (of_all(FOOTPRINT), of_all(GP_OVER_TIME));
    let time = time_axis(all_memory.iter().chain(&all_gp));
    let bytes = value_axis("Memory footprint", Unit::Bytes, all_memory.iter());
    let duration = value_axis("GP duration, each at its end", Unit::Nanoseconds, all_gp.iter());
    let left = left_of(&[&bytes, &duration]);
    let panel = |top: f64, y| Panel { left, top, height: PANEL_HEIGHT, right: RIGHT_MARGIN, x: &time, y };
    let upper = panel(LINE + 10.0, &bytes);
    let lower = panel(upper.bottom() + BETWEEN, &duration);
    let body = html! {
        (upper.frame(false)) (upper.curve(index, &memory))
        (lower.frame(true)) (lower.stems(index, &gp))
    };
    Some(Figure::new(
        study,
        &format!("footprint-and-gp-{condition}"),
        Shows {
            what: format!("Footprint and grace periods: {}", legend_name(condition)),
            finding: headline::under(study, condition),
        },
        &format!("{} Same axes for every condition.", shown_runs(study, &[run])),
        (body, lower.bottom() + FOOT),
    ))
}

/// The run of that condition that is shown for a timeline, and the timeline, thinned with its spikes kept.
fn first_with<'a>(study: &'a Study, condition: &'a str, key: &str) -> Option<(&'a Observation, Timeline)> {
    let with = |run: &'a Observation| {
        let timeline = run.timelines.get(key).filter(|timeline| !timeline.t_ns.is_empty())?;
        Some((run, timeline.downsampled(POINTS)))
    };
    study.runs_of(condition).find_map(with)
}

fn shown_runs(study: &Study, runs: &[&Observation]) -> String {
    let said: Vec<String> =
        runs.iter().map(|run| format!("{} {}", legend_name(&run.condition), run.repetition + 1)).collect();
    format!("Repetition shown, of {}: {}.", study.scenario.run.repeat, said.join(", "))
}

fn time_axis<'a>(timelines: impl Iterator<Item = &'a Timeline>) -> Axis {
    let last_ns = timelines.filter_map(|timeline| timeline.t_ns.last()).max().copied().unwrap_or(0);
    Axis::linear("Time from the start of the window", Unit::Nanoseconds, last_ns as f64, 8, End::AtValue)
}

fn value_axis<'a>(name: &str, unit: Unit, timelines: impl Iterator<Item = &'a Timeline>) -> Axis {
    let values = timelines.flat_map(|timeline| &timeline.values).copied();
    let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    Axis::linear(name, unit, highest, 5, End::AtTick)
}
