//! Cumulative distribution of grace-period durations, pooled over a condition's repetitions. The long grace
//! periods are few, so the vertical axis would hide them were it not for the logarithmic horizontal one.

use reprieve_study::metric::Unit;
use reprieve_study::observation::GP_DURATIONS;
use reprieve_study::{Distribution, Study, metric};

use super::Figure;
use super::axis::{Axis, End};
use super::staircase::Staircase;

/// Share of grace periods that were no longer than a duration, one curve for each condition.
pub fn gp_distribution(study: &Study) -> Option<Figure> {
    let staircase = Staircase {
        name: "gp-distribution",
        title: "Distribution of grace-period durations",
        metric: metric::GP_P99,
        key: GP_DURATIONS,
        counted: " GPs",
        durations: "GP duration",
        shares: |_| Axis::linear("Share of grace periods at or below", Unit::Share, 1.0, 5, End::AtTick),
        corners,
    };
    staircase.figure(study)
}

/// Without durations of 0, for which a logarithmic axis has no place.
fn corners(distribution: &Distribution) -> Vec<(f64, f64)> {
    let corners = distribution.cumulative().into_iter();
    corners
        .filter(|(duration_ns, _)| *duration_ns > 0)
        .map(|(duration_ns, share)| (duration_ns as f64, share))
        .collect()
}
