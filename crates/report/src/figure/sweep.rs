//! What a sweep showed: one panel a metric over the values of the swept key, one line a condition; a dot is the
//! median, its bar goes from the smallest to the largest value.

use maud::{Markup, html};
use reprieve_study::scenario::Sweep;
use reprieve_study::swept::{Curve, Point};
use reprieve_study::units::significant;
use reprieve_study::{Metric, Study, metric, statistics};

use super::axis::{Axis, End};
use super::canvas::{LINE, Panel, RIGHT_MARGIN, left_of, legend, px, text_width};
use super::style::SERIES;
use super::{Figure, Shows, legend_name, series};
use crate::quantity::Spread;
use crate::sweeps;

/// What is drawn, where it was measured.
const SHOWN: [(&str, &str); 10] = [
    (metric::IO_RATE, "Read and written"),
    (metric::IO_INACTIVE_SHARE, "I/O inactivity, of the window"),
    (metric::JAIN, "Jain's index of fairness"),
    (metric::LATENCY_P90, "Latency, p90"),
    (metric::LATENCY_P99, "Latency, p99"),
    (metric::LATENCY_P999, "Latency, p99.9"),
    (metric::SPINNER_CPU, "CPU given to a spinner"),
    (metric::GP_MEAN, "GP duration, average"),
    (metric::FOOTPRINT_PEAK, "Memory footprint, peak"),
    (metric::BACKLOG_PEAK, "Callback backlog, peak"),
];
const PANEL_HEIGHT: f64 = 120.0;
/// From one panel's lower edge to the next one's upper edge: room for a title.
const BETWEEN: f64 = 34.0;
const DOT: f64 = 3.0;
/// Values that reach over more than this factor are drawn on a logarithmic axis.
const WIDE: f64 = 20.0;

/// The sweep of that name.
pub fn sweep(study: &Study, name: &str) -> Option<Figure> {
    let swept = study.scenario.sweeps.get(name)?;
    let measured = SHOWN.iter().filter_map(|(id, title)| {
        let curves = study.curves(name, id);
        (!curves.is_empty()).then_some((metric::find(id)?, *title, curves))
    });
    let measured: Vec<(&Metric, &str, Vec<Curve>)> = measured.collect();
    let (_, _, first) = measured.first()?;
    let values = Values::of(swept);
    let axes: Vec<Axis> =
        measured.iter().map(|(metric, title, curves)| vertical(metric, title, curves)).collect();
    let left = left_of(&axes.iter().collect::<Vec<_>>());
    let names: Vec<(usize, String)> = first
        .iter()
        .map(|curve| (index_of(study, &curve.condition), legend_name(&curve.condition)))
        .collect();
    let (legend, legend_height) = legend(LINE, &names);
    let mut top = LINE + legend_height + LINE;
    let mut panels = Vec::new();
    for (y, (_, _, curves)) in axes.iter().zip(&measured) {
        let mut panel = Panel { left, top, height: PANEL_HEIGHT, right: RIGHT_MARGIN, x: &values.axis, y };
        let x = values.labelled(panel.width());
        panel.x = &x;
        let last = panels.len() + 1 == measured.len();
        panels.push(html! {
            (panel.frame(last))
            @for curve in curves { (line(&panel, index_of(study, &curve.condition), curve, &values)) }
        });
        top = panel.bottom() + BETWEEN;
    }
    let body = html! { (legend) @for panel in &panels { (panel) } };
    let reading = "Medians over repetitions; bars from the smallest to the largest value.";
    Some(Figure::new(
        study,
        &format!("sweep-{name}"),
        Shows { what: format!("Sweep: {}", sweeps::title(name, swept)), finding: ends(name, &measured[0]) },
        reading,
        (body, top - BETWEEN + 2.0 * LINE + 10.0),
    ))
}

/// The first panel's medians at both ends of the last condition's curve.
fn ends(name: &str, (metric, title, curves): &(&Metric, &str, Vec<Curve>)) -> Option<String> {
    let curve = curves.last()?;
    let (first, last) = (curve.points.first()?, curve.points.last()?);
    let median = |point: &Point| Some(Spread::of(metric.unit, &point.values)?.median);
    let at = |point: &Point| Some(format!("{} at {}", median(point)?, significant(point.at)));
    (first.at != last.at).then_some(())?;
    Some(format!("{name}: {title} {}, {}, under {}", at(first)?, at(last)?, legend_name(&curve.condition)))
}

fn index_of(study: &Study, condition: &str) -> usize {
    series(study).find(|(_, name)| *name == condition).map_or(0, |(index, _)| index)
}

fn vertical(metric: &Metric, title: &str, curves: &[Curve]) -> Axis {
    let values = curves.iter().flat_map(|curve| &curve.points).flat_map(|point| &point.values).copied();
    let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    Axis::linear(title, metric.unit, highest, 4, End::AtTick)
}

/// The swept values and their axis, whose ticks are the values themselves.
pub(super) struct Values {
    /// Without ticks for labels, see [`Values::labelled`].
    pub(super) axis: Axis,
    /// Where a value of zero is put on a logarithmic axis.
    zero_at: Option<f64>,
    ticks: Vec<(f64, String)>,
}

impl Values {
    pub(super) fn of(sweep: &Sweep) -> Values {
        let mut values: Vec<(f64, String)> =
            sweep.values.iter().filter_map(|value| Some((value.number()?, value.to_string()))).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let highest = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
        let least = values.iter().map(|(value, _)| *value).find(|value| *value > 0.0).unwrap_or(1.0);
        let name = if sweep.unit.is_empty() { &sweep.key } else { &sweep.unit };
        let negative = values.iter().any(|(value, _)| *value < 0.0);
        let logarithmic = highest / least > WIDE && !negative;
        let zero = values.iter().any(|(value, _)| *value == 0.0);
        let zero_at = (zero && logarithmic).then_some(least / 4.0);
        let mut axis = match logarithmic {
            true => Axis::logarithmic(name, zero_at.unwrap_or(least) / 1.1, highest * 1.1, |_| String::new()),
            false => Axis::linear("", reprieve_study::Unit::Index, highest, 5, End::AtTick),
        };
        axis.title = name.clone();
        Values { axis, zero_at, ticks: values }
    }

    /// Where the value is on the axis.
    pub(super) fn at(&self, value: f64) -> f64 {
        if value == 0.0 { self.zero_at.unwrap_or(value) } else { value }
    }

    /// The axis with those ticks whose labels are clear of each other in a plot of that width.
    pub(super) fn labelled(&self, width: f64) -> Axis {
        let mut axis = self.axis.clone();
        axis.ticks.clear();
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &self.ticks {
            let (at, half) = (self.at(*value), text_width(label) / 2.0);
            let middle = axis.place(at) * width;
            if middle - half >= free_from {
                axis.ticks.push(super::axis::Tick { at, label: label.clone() });
                free_from = middle + half + 8.0;
            }
        }
        axis
    }
}

/// A condition's line. Where colours start over, the dots are hollow.
pub(super) fn line(panel: &Panel<'_>, series: usize, curve: &Curve, values: &Values) -> Markup {
    let mut points: Vec<&Point> = curve.points.iter().collect();
    points.sort_by(|a, b| a.at.total_cmp(&b.at));
    let (dot, series) = (if series < SERIES { "d" } else { "whisker s" }, series % SERIES);
    let place = |point: &Point, value: f64| panel.at(values.at(point.at), value);
    let middle = |point: &Point| place(point, statistics::median(&point.values).unwrap_or(0.0));
    let path: Vec<String> = points
        .iter()
        .map(|point| {
            let (x, y) = middle(point);
            format!("{},{}", px(x), px(y))
        })
        .collect();
    html! {
        polyline class={ "curve s" (series) } points=(path.join(" ")) {}
        @for point in points {
            @let (x, y) = middle(point);
            @let low = place(point, point.values.iter().copied().fold(f64::INFINITY, f64::min)).1;
            @let high = place(point, point.values.iter().copied().fold(0.0, f64::max)).1;
            line class={ "whisker s" (series) } x1=(px(x)) x2=(px(x)) y1=(px(low)) y2=(px(high)) {}
            circle class={ (dot) (series) } cx=(px(x)) cy=(px(y)) r=(DOT) {}
        }
    }
}
