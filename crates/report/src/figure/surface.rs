//! A metric over the axes of a space: over two axes a map, whose cells have the value as a number and as the strength of a colour;
//! over one axis a dot for each value, with its interval as a bar.

use maud::{Markup, html};
use reprieve_study::Unit;
use reprieve_study::statistics::Estimate;
use reprieve_study::surface::{Bin, Cell};

use super::Figure;
use super::axis::{Axis, End, Tick};
use super::canvas::{GAP, LINE, Panel, RIGHT_MARGIN, WIDTH, left_of, px, text_width};
use crate::surface::{Shows, Surfaced};

const PANEL_HEIGHT: f64 = 220.0;
const DOT: f64 = 3.5;
const CELL_HEIGHT: f64 = 34.0;
/// The strongest colour of a cell, on which its number can still be read.
const STRONGEST: f64 = 0.75;

/// The figure; none if nothing was measured.
pub fn surface(of: &Surfaced<'_>) -> Option<Figure> {
    of.surface.cells.iter().find_map(|cell| of.estimate(cell))?;
    let (body, height) = match &of.surface.bins[..] {
        [bins] => over_one(of, bins),
        [rows, columns] => map(of, rows, columns),
        _ => return None,
    };
    let slug = of.axes.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("-");
    Some(Figure {
        slug: super::slug_of(&format!("{}-{}-{slug}", of.scenario, of.metric.id)),
        title: of.title(),
        caption: of.caption(),
        height,
        body,
    })
}

/// Dots with bars.
fn over_one(of: &Surfaced<'_>, bins: &[Bin]) -> (Markup, f64) {
    let estimates: Vec<Option<Estimate>> = of.surface.cells.iter().map(|cell| of.estimate(cell)).collect();
    let highest = estimates.iter().flatten().map(|one| one.high).fold(0.0, f64::max);
    let unit = match of.shows {
        Shows::Ratio => Unit::Index,
        Shows::Value => of.metric.unit,
    };
    let y = Axis::linear(&of.quantity(), unit, highest, 5, End::AtTick);
    // The values stand at equal distances, whatever they are: texts have no other place.
    let mut x = Axis::linear("", Unit::Index, bins.len() as f64, 1, End::AtValue);
    x.title = of.axis_title(0);
    x.ticks = bins
        .iter()
        .enumerate()
        .map(|(number, bin)| Tick { at: middle(number), label: bin.label.clone() })
        .collect();
    let panel = Panel {
        left: left_of(&[&y]),
        top: 2.0 * LINE,
        height: PANEL_HEIGHT,
        right: RIGHT_MARGIN,
        x: &x,
        y: &y,
    };
    let markup = html! {
        (panel.frame(true))
        @for (number, estimate) in estimates.iter().enumerate() {
            @if let Some(Estimate { value, low, high }) = estimate {
                @let (x, y) = panel.at(middle(number), *value);
                @let (from, to) = (panel.at(0.0, *low).1, panel.at(0.0, *high).1);
                line class="whisker s1" x1=(px(x)) x2=(px(x)) y1=(px(from)) y2=(px(to)) {}
                circle class="d1" cx=(px(x)) cy=(px(y)) r=(DOT) {}
            }
        }
    };
    (markup, panel.bottom() + 2.0 * LINE + 10.0)
}

fn middle(number: usize) -> f64 {
    number as f64 + 0.5
}

/// A map: a row for each value of the first axis, a column for each value of the second one.
fn map(of: &Surfaced<'_>, rows: &[Bin], columns: &[Bin]) -> (Markup, f64) {
    let left = rows.iter().map(|bin| text_width(&bin.label)).fold(60.0, f64::max) + GAP + 12.0;
    let (top, width) = (2.0 * LINE, (WIDTH - RIGHT_MARGIN - left) / columns.len() as f64);
    let strength = strength(of);
    let place = |index: usize| {
        let (row, column) = (index / columns.len(), index % columns.len());
        (left + column as f64 * width, top + row as f64 * CELL_HEIGHT)
    };
    let bottom = top + rows.len() as f64 * CELL_HEIGHT;
    let markup = html! {
        text x="12" y=(px(top - 10.0)) class="muted" { (of.axis_title(0)) }
        @for (row, bin) in rows.iter().enumerate() {
            text x=(px(left - GAP)) y=(px(top + row as f64 * CELL_HEIGHT + CELL_HEIGHT / 2.0 + 4.0)) text-anchor="end" class="muted" {
                (bin.label)
            }
        }
        @for (index, cell) in of.surface.cells.iter().enumerate() {
            @let (x, y) = place(index);
            @if let Some(estimate) = of.estimate(cell) {
                rect class="d1" fill-opacity=(format!("{:.2}", strength(cell))) x=(px(x)) y=(px(y))
                    width=(px(width - 2.0)) height=(px(CELL_HEIGHT - 2.0)) {
                    title { (of.told(cell)) }
                }
                text x=(px(x + width / 2.0 - 1.0)) y=(px(y + CELL_HEIGHT / 2.0 + 3.0)) text-anchor="middle" {
                    (of.show(estimate.value))
                }
            }
        }
        @for (column, bin) in columns.iter().enumerate() {
            text x=(px(left + (column as f64 + 0.5) * width)) y=(px(bottom + LINE)) text-anchor="middle" class="muted" {
                (bin.label)
            }
        }
        text x=(px(WIDTH - RIGHT_MARGIN)) y=(px(bottom + 2.0 * LINE)) text-anchor="end" class="muted" { (of.axis_title(1)) }
    };
    (markup, bottom + 2.0 * LINE + 10.0)
}

/// How strong the colour of a cell is: by the logarithm of its value, from the least to the largest one. Values that hardly differ
/// look alike.
fn strength<'a>(of: &'a Surfaced<'_>) -> impl Fn(&Cell) -> f64 + 'a {
    let log = |cell: &Cell| of.estimate(cell).map(|one| one.value).filter(|value| *value > 0.0).map(f64::ln);
    let all: Vec<f64> = of.surface.cells.iter().filter_map(log).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // A factor of two takes at least a third of the colours.
    let span = (high - low).max(2.0 * std::f64::consts::LN_2);
    move |cell| log(cell).map_or(0.0, |value| (value - low) / span * STRONGEST)
}
