//! Extra memory over the overcommit ratio, a line without and with each remedy: a dot is the median, its bar reaches to the
//! upper bound at the risk that was asked for.

use maud::{Markup, html};
use reprieve_study::Unit;
use reprieve_study::provision::{Provision, Row, arrange};
use reprieve_study::scenario::Remedy;
use reprieve_study::units::size;

use super::Figure;
use super::axis::{Axis, End, Tick};
use super::canvas::{LINE, Panel, RIGHT_MARGIN, left_of, legend, px};
use super::style::SERIES;

const HEIGHT: f64 = 240.0;
const DOT: f64 = 3.5;

/// The figure; none if the conditions are not ratios.
pub fn extra_memory(answer: &Provision) -> Option<Figure> {
    let rows: Vec<&Row> = answer.rows.iter().filter(|row| row.ratio.is_some()).collect();
    let highest = rows.iter().map(|row| row.extra_at_risk.upper).fold(0.0, f64::max);
    let budget = answer.budget_bytes.map(|bytes| bytes as f64).filter(|bytes| *bytes <= 4.0 * highest);
    let last = rows.iter().filter_map(|row| row.ratio).reduce(f64::max)?;
    let y = Axis::linear("Extra memory", Unit::Bytes, highest.max(budget.unwrap_or(0.0)), 5, End::AtTick);
    let mut x = Axis::linear("", Unit::Index, last, 5, End::AtValue);
    x.title = "busy vCPUs per pCPU".into();
    x.ticks = ticks(&rows);
    let mut remedies: Vec<Option<Remedy>> = Vec::new();
    rows.iter().for_each(|row| {
        if !remedies.contains(&row.remedy) {
            remedies.push(row.remedy)
        }
    });
    let named = |remedy: &Option<Remedy>| remedy.map_or("no remedy".into(), arrange::remedy_name);
    let names: Vec<(usize, String)> = remedies.iter().map(named).enumerate().collect();
    let (legend, legend_height) = legend(LINE, &names);
    let panel = Panel {
        left: left_of(&[&y]),
        top: LINE + legend_height + LINE,
        height: HEIGHT,
        right: RIGHT_MARGIN,
        x: &x,
        y: &y,
    };
    let body = html! {
        (legend)
        (panel.frame(true))
        @for (series, remedy) in remedies.iter().enumerate() {
            (line(&panel, series % SERIES, rows.iter().copied().filter(|row| row.remedy == *remedy)))
        }
        @if let Some(bytes) = budget {
            @let at = panel.at(0.0, bytes).1;
            line class="reference" x1=(px(panel.left)) x2=(px(panel.left + panel.width())) y1=(px(at)) y2=(px(at)) {}
        }
    };
    let reading = match budget {
        Some(bytes) => format!(" The black line is the budget, {}.", size(bytes)),
        None => String::new(),
    };
    Some(Figure {
        slug: "plan-extra-memory".into(),
        title: "Extra memory beside busy neighbours".into(),
        caption: format!(
            "Medians of windows; bars reach to the upper bound of the quantile {}.{reading} Simulated.",
            answer.risk
        ),
        height: panel.bottom() + 2.0 * LINE + 10.0,
        body,
    })
}

/// The ratios, in ascending order.
fn ticks(rows: &[&Row]) -> Vec<Tick> {
    let mut ratios: Vec<f64> = rows.iter().filter_map(|row| row.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    ratios.into_iter().map(|at| Tick { at, label: at.to_string() }).collect()
}

fn line<'a>(panel: &Panel<'_>, series: usize, rows: impl Iterator<Item = &'a Row>) -> Markup {
    let points: Vec<(f64, f64, f64)> = rows
        .map(|row| {
            let (x, y) = panel.at(row.ratio.unwrap_or(0.0), row.extra_median.value);
            (x, y, panel.at(0.0, row.extra_at_risk.upper).1)
        })
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y, _)| format!("{},{}", px(*x), px(*y))).collect();
    html! {
        polyline class={ "curve s" (series) } points=(path.join(" ")) {}
        @for (x, y, upper) in points {
            line class={ "whisker s" (series) } x1=(px(x)) x2=(px(x)) y1=(px(y)) y2=(px(upper)) {}
            circle class={ "d" (series) } cx=(px(x)) cy=(px(y)) r=(DOT) {}
        }
    }
}
