//! Ratios to the baseline with their intervals, beside the published ones, on a logarithmic axis: half as
//! much and twice as much are equally far from 1.

use maud::{Markup, html};
use reprieve_study::{Metric, Row, Study, metric};

use super::axis::{Axis, ratio_label};
use super::canvas::{LINE, Panel, RIGHT_MARGIN, WIDTH, px, text_width};
use super::style::SERIES;
use super::{Figure, Shows, legend_name, series};
use crate::table;

/// Ratios beyond are drawn at the edge: an effect of a thousand needs no longer axis.
const FARTHEST: f64 = 1_000.0;
/// Distance between the dots of two conditions in one row.
const APART: f64 = 12.0;
const DOT: f64 = 4.0;

/// A metric with the rows that have a ratio or a published one, each with the series of its condition.
type Entry<'a> = (&'static Metric, Vec<(usize, &'a Row)>);

/// One row of dots for each metric that matters or has a published ratio; the latter first.
pub fn ratios(study: &Study) -> Option<Figure> {
    let what = format!("Ratios to {}", legend_name(study.scenario.baseline()));
    draw(study, entries(study), "ratios", Shows { what, finding: None })
}

/// The metrics with a published ratio alone, under the condition that it is of.
pub fn published(study: &Study) -> Option<Figure> {
    let mut entries = entries(study);
    entries.iter_mut().for_each(|(_, rows)| rows.retain(|(_, row)| row.published.is_some()));
    entries.retain(|(_, rows)| !rows.is_empty());
    let mut tallies = study.comparisons.iter().filter_map(table::tally);
    let (first, second) = (tallies.next(), tallies.next());
    let finding = first.filter(|_| second.is_none()).map(|tally| tally.trim_end_matches('.').to_string());
    draw(study, entries, "published", Shows { what: "Published ratios and ours".into(), finding })
}

fn draw(study: &Study, entries: Vec<Entry<'_>>, slug: &str, shows: Shows) -> Option<Figure> {
    let axis = axis(&entries)?;
    let left = entries.iter().map(|(metric, _)| text_width(metric.label)).fold(0.0, f64::max) + 16.0;
    let compared = entries.iter().map(|(_, rows)| rows.len()).max().unwrap_or(1) as f64;
    let row_height = APART * (compared - 1.0) + 20.0;
    let (legend, legend_height) = legend(study, &entries);
    let top = LINE + legend_height;
    let none = Axis::logarithmic("", 1.0, 10.0, |_| String::new());
    let height = row_height * entries.len() as f64;
    let panel = Panel { left, top, height, right: RIGHT_MARGIN, x: &axis, y: &none };
    let body = html! {
        (legend)
        (grid(&panel))
        @for (index, entry) in entries.iter().enumerate() {
            (row(&panel, top + row_height * (index as f64 + 0.5), entry))
        }
    };
    let reading = "Ratio of medians with its 95 % bootstrap interval; diamond: published. At 1 nothing changed. Ratios \
                   beyond 1000 are drawn at the edge. The tables have further metrics.";
    Some(Figure::new(study, slug, shows, reading, (body, panel.bottom() + 2.0 * LINE + 10.0)))
}

fn entries(study: &Study) -> Vec<Entry<'_>> {
    let of = |metric: &'static Metric| -> Entry<'_> {
        let rows = study.comparisons.iter().filter_map(|comparison| {
            let (index, _) = series(study).find(|(_, name)| *name == comparison.condition)?;
            Some((index, comparison.row(metric.id)?))
        });
        (metric, rows.filter(|(_, row)| row.ratio.is_some() || row.published.is_some()).collect())
    };
    let has_published = |(_, rows): &Entry<'_>| rows.iter().any(|(_, row)| row.published.is_some());
    let wanted = table::rows(study);
    let matters = |entry: &Entry<'_>| has_published(entry) || wanted.contains(&entry.0.id);
    let all = metric::ALL.iter().map(of).filter(|entry| !entry.1.is_empty() && matters(entry));
    let (mut first, rest): (Vec<Entry<'_>>, Vec<Entry<'_>>) = all.partition(has_published);
    first.extend(rest);
    first
}

/// Around all values and 1; `None` when there are none.
fn axis(entries: &[Entry<'_>]) -> Option<Axis> {
    let rows = || entries.iter().flat_map(|(_, rows)| rows).map(|(_, row)| row);
    let ours = rows().filter_map(|row| row.ratio).flat_map(|ratio| [ratio.low, ratio.value, ratio.high]);
    let theirs = rows().filter_map(|row| Some(row.published.as_ref()?.ratio));
    let values: Vec<f64> = ours.chain(theirs).filter(|value| value.is_finite() && *value > 0.0).collect();
    if values.is_empty() {
        return None;
    }
    let low = values.iter().copied().fold(0.8, f64::min).max(1.0 / FARTHEST);
    let high = values.iter().copied().fold(1.25, f64::max).min(FARTHEST);
    Some(Axis::logarithmic("Condition over baseline", low / 1.15, high * 1.15, ratio_label))
}

fn grid(panel: &Panel<'_>) -> Markup {
    let (one, right) = (panel.at(1.0, 1.0).0, panel.left + panel.width());
    html! {
        @for tick in &panel.x.ticks {
            @let x = panel.at(tick.at, 1.0).0;
            line class="grid" x1=(px(x)) x2=(px(x)) y1=(px(panel.top)) y2=(px(panel.bottom())) {}
            text x=(px(x)) y=(px(panel.bottom() + LINE)) text-anchor="middle" class="muted" { (tick.label) }
        }
        line class="base" x1=(px(one)) x2=(px(one)) y1=(px(panel.top)) y2=(px(panel.bottom())) {}
        text x=(px(right)) y=(px(panel.bottom() + 2.0 * LINE)) text-anchor="end" class="muted" { (panel.x.title) }
    }
}

fn row(panel: &Panel<'_>, middle: f64, (metric, rows): &Entry<'_>) -> Markup {
    let first = middle - APART * (rows.len() as f64 - 1.0) / 2.0;
    html! {
        text x=(px(panel.left - 10.0)) y=(px(middle + 4.0)) text-anchor="end" { (metric.label) }
        @for (place, (series, row)) in rows.iter().enumerate() {
            @let y = first + APART * place as f64;
            @if let Some(ratio) = row.ratio {
                @let (low, high) = (panel.at(ratio.low, 1.0).0, panel.at(ratio.high, 1.0).0);
                line class={ "whisker s" (series % SERIES) } x1=(px(low)) x2=(px(high)) y1=(px(y)) y2=(px(y)) {}
                circle class={ "d" (series % SERIES) } cx=(px(panel.at(ratio.value, 1.0).0)) cy=(px(y)) r=(DOT) {}
            }
            @if let Some(published) = &row.published {
                (diamond(panel.at(published.ratio, 1.0).0, y))
            }
        }
    }
}

fn diamond(x: f64, y: f64) -> Markup {
    let size = DOT + 1.0;
    let path = format!("M{},{}l{size},{size}l-{size},{size}l-{size},-{size}z", px(x), px(y - size));
    html! { path class="reference" d=(path) {} }
}

fn legend(study: &Study, entries: &[Entry<'_>]) -> (Markup, f64) {
    let (mut x, mut y) = (12.0, LINE);
    let mut places = Vec::new();
    let drawn = |index| entries.iter().any(|(_, rows)| rows.iter().any(|(series, _)| *series == index));
    let conditions = series(study).filter(|(index, _)| drawn(*index));
    let named = conditions.map(|(index, name)| (Some(index % SERIES), legend_name(name)));
    for (series, name) in named.chain([(None, "published".to_string())]) {
        let needed = 18.0 + text_width(&name) + 18.0;
        if x > 12.0 && x + needed > WIDTH {
            (x, y) = (12.0, y + LINE);
        }
        places.push((x, y, series, name));
        x += needed;
    }
    let markup = html! {
        @for (x, y, series, name) in places {
            @match series {
                Some(series) => circle class={ "d" (series) } cx=(px(x + 6.0)) cy=(px(y - 4.0)) r=(DOT) {},
                None => (diamond(x + 6.0, y - 4.0)),
            }
            text x=(px(x + 18.0)) y=(px(y)) { (name) }
        }
    };
    (markup, y)
}
