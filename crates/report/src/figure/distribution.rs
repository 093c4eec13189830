//! Cumulative distribution of grace-period durations, pooled over a condition's repetitions. The long grace
//! periods are few, so the vertical axis would hide them were it not for the logarithmic horizontal one.

use maud::html;
use reprieve_study::metric::Unit;
use reprieve_study::observation::GP_DURATIONS;
use reprieve_study::{Distribution, Study};

use super::axis::{Axis, End, duration_label};
use super::canvas::{LINE, Panel, RIGHT_MARGIN, left_of, legend};
use super::{Figure, legend_name, series};

const HEIGHT: f64 = 230.0;

/// Share of grace periods that were no longer than a duration, one curve for each condition.
pub fn gp_distribution(study: &Study) -> Option<Figure> {
    let pooled: Vec<(usize, &str, Distribution)> = series(study)
        .map(|(index, condition)| (index, condition, pool(study, condition, GP_DURATIONS)))
        .filter(|(.., distribution)| distribution.count() > 0)
        .collect();
    let curves: Vec<(usize, Vec<(f64, f64)>)> =
        pooled.iter().map(|(index, _, distribution)| (*index, points(distribution))).collect();
    let durations = || curves.iter().flat_map(|(_, points)| points).map(|(duration_ns, _)| *duration_ns);
    durations().next()?;
    let (shortest, longest) = (durations().fold(f64::INFINITY, f64::min), durations().fold(0.0, f64::max));
    let x = Axis::logarithmic("GP duration", shortest / 1.1, longest * 1.1, duration_label);
    let y = Axis::linear("Share of grace periods at or below", Unit::Share, 1.0, 5, End::AtTick);
    let names: Vec<(usize, String)> = pooled
        .iter()
        .map(|(index, name, distribution)| {
            (*index, format!("{} ({} GPs)", legend_name(name), distribution.count()))
        })
        .collect();
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
        @for (index, points) in &curves { (panel.staircase(*index, points)) }
    };
    Some(Figure::new(
        study,
        "gp-distribution",
        "Distribution of grace-period durations".into(),
        "Pooled over all repetitions that count; a curve further right is slower.",
        (body, panel.bottom() + 2.0 * LINE + 10.0),
    ))
}

pub(super) fn pool(study: &Study, condition: &str, key: &str) -> Distribution {
    let mut pooled = Distribution::default();
    for run in study.runs_of(condition) {
        if let Some(distribution) = run.distributions.get(key) {
            pooled.merge(distribution);
        }
    }
    pooled
}

fn points(distribution: &Distribution) -> Vec<(f64, f64)> {
    let points = distribution.cumulative().into_iter();
    points
        .filter(|(duration_ns, _)| *duration_ns > 0)
        .map(|(duration_ns, share)| (duration_ns as f64, share))
        .collect()
}
