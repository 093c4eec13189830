//! What each remedy recovers: a row of dots for each remedy, one for each workload, and the smallest of them with its
//! interval. A panel for each metric that is scored, side by side. Of several ideals the first one is
//! drawn.

use maud::{Markup, html};
use reprieve_study::recovery::{Board, Recovered, Recovery};
use reprieve_study::{Study, metric};

use super::canvas::{LINE, RIGHT_MARGIN, WIDTH, px, text_width};
use super::style::SERIES;
use super::{Figure, Shows, legend_name};
use crate::recovery;

/// The axis: shares beyond are drawn at its ends.
const ENDS: [f64; 2] = [-0.5, 1.5];
const TICKS: [f64; 5] = [-0.5, 0.0, 0.5, 1.0, 1.5];
const ROW: f64 = 22.0;
/// Between two panels.
const BETWEEN: f64 = 54.0;
const DOT: f64 = 3.5;
/// The smallest share.
const WORST_DOT: f64 = 5.0;

/// A panel's left edge and width.
type Place = (f64, f64);

/// The figure; `None` for a study without a scoreboard, or one in which nothing could be recovered.
pub fn recovered(study: &Study) -> Option<Figure> {
    let mut found = study.recovery()?;
    let ideal = found.boards.first()?.ideal;
    found.boards.retain(|board| board.ideal == ideal);
    let conditions: Vec<&str> = found.boards[0].remedies.iter().map(|one| one.condition.as_str()).collect();
    let is_scored = |board: &Board| board.remedies.iter().any(|one| one.shares.iter().any(Option::is_some));
    if !found.boards.iter().any(is_scored) {
        return None;
    }
    let left = conditions.iter().map(|name| text_width(&legend_name(name))).fold(0.0, f64::max) + 16.0;
    let count = found.boards.len() as f64;
    let width = (WIDTH - RIGHT_MARGIN - left - BETWEEN * (count - 1.0)) / count;
    let (legend, legend_height) = legend(&found);
    let top = legend_height + 2.0 * LINE;
    let bottom = top + ROW * conditions.len() as f64;
    let body = html! {
        (legend)
        @for (row, name) in conditions.iter().enumerate() {
            text x=(px(left - 10.0)) y=(px(middle(top, row) + 4.0)) text-anchor="end" { (legend_name(name)) }
        }
        @for (index, board) in found.boards.iter().enumerate() {
            @let place = (left + index as f64 * (width + BETWEEN), width);
            (panel(place, [top, bottom], board))
            @for (row, one) in board.remedies.iter().enumerate() { (dots(place, middle(top, row), one, &found)) }
        }
    };
    let reading = "Share of the effect: 0 % as without a remedy, 100 % as with the ideal; a dot for each workload in which \
                   the distance is clear, a large one with a 95 % bootstrap interval for the smallest. Shares beyond -50 % \
                   and 150 % are drawn at the edge.";
    let shows = Shows { what: "What remedies recover".into(), finding: finding(&found) };
    Some(Figure::new(study, "recovered", shows, reading, (body, bottom + LINE + 10.0)))
}

fn finding(found: &Recovery) -> Option<String> {
    let of_all = |board: &Board| {
        let all = board.remedies.iter().find(|one| one.condition == recovery::ALL)?;
        let label = if board.metric == metric::GP_P99 { "GP p99" } else { "peak footprint" };
        let worst = all.smallest.as_ref()?;
        let share = recovery::share(worst.value.value);
        Some(format!("{share} of {label} in {} of {}", worst.of, found.workloads.len()))
    };
    let shares: Option<Vec<String>> = found.boards.iter().map(of_all).collect();
    Some(format!("All remedies recover at least {} workloads", shares?.join(", ")))
}

fn middle(top: f64, row: usize) -> f64 {
    top + ROW * (row as f64 + 0.5)
}

fn at((left, width): Place, share: f64) -> f64 {
    left + (share.clamp(ENDS[0], ENDS[1]) - ENDS[0]) / (ENDS[1] - ENDS[0]) * width
}

fn panel(place: Place, [top, bottom]: [f64; 2], board: &Board) -> Markup {
    let label = metric::find(board.metric).map_or(board.metric, |metric| metric.label);
    html! {
        text x=(px(place.0)) y=(px(top - 10.0)) { (label) }
        @for tick in TICKS {
            @let x = px(at(place, tick));
            @let class = if tick == 0.0 || tick == 1.0 { "base" } else { "grid" };
            line class=(class) x1=(x) x2=(x) y1=(px(top)) y2=(px(bottom)) {}
            text x=(x) y=(px(bottom + LINE)) text-anchor="middle" class="muted" { (recovery::share(tick)) }
        }
    }
}

fn dots(place: Place, y: f64, one: &Recovered, found: &Recovery) -> Markup {
    let worst = one.smallest.as_ref();
    let series = |name: &str| found.workloads.iter().position(|other| other == name).unwrap_or(0) % SERIES;
    html! {
        @for (index, share) in one.shares.iter().enumerate() {
            @if let Some(share) = share {
                circle class={ "d" (index % SERIES) } cx=(px(at(place, share.value))) cy=(px(y)) r=(DOT) {}
            }
        }
        @if let Some(worst) = worst {
            @let number = series(&worst.workload);
            @let (low, high) = (at(place, worst.value.low), at(place, worst.value.high));
            line class={ "whisker s" (number) } x1=(px(low)) x2=(px(high)) y1=(px(y)) y2=(px(y)) {}
            circle class={ "d" (number) } cx=(px(at(place, worst.value.value))) cy=(px(y)) r=(WORST_DOT) {}
        }
    }
}

fn legend(found: &Recovery) -> (Markup, f64) {
    let (mut x, mut y) = (12.0, LINE);
    let mut places = Vec::new();
    for (index, name) in found.workloads.iter().enumerate() {
        let name = legend_name(name);
        let needed = 18.0 + text_width(&name) + 18.0;
        if x > 12.0 && x + needed > WIDTH {
            (x, y) = (12.0, y + LINE);
        }
        places.push((x, y, index % SERIES, name));
        x += needed;
    }
    let markup = html! {
        @for (x, y, series, name) in places {
            circle class={ "d" (series) } cx=(px(x + 6.0)) cy=(px(y - 4.0)) r=(WORST_DOT) {}
            text x=(px(x + 18.0)) y=(px(y)) { (name) }
        }
    };
    (markup, y)
}
