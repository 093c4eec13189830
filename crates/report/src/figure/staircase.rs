//! A distribution as a staircase, pooled over a condition's repetitions, one curve for each condition: how the shares of
//! durations grow (`distribution.rs`), or fall (`tail.rs`), over a logarithmic axis.

use maud::html;
use reprieve_study::{Distribution, Study};

use super::axis::{Axis, duration_label};
use super::canvas::{LINE, Panel, RIGHT_MARGIN, left_of, legend};
use super::{Figure, Shows, legend_name, series};
use crate::headline;

const HEIGHT: f64 = 230.0;

/// What one such figure is of.
pub(super) struct Staircase {
    /// The figure's name, and its title.
    pub name: &'static str,
    pub title: &'static str,
    /// The metric that sums it up.
    pub metric: &'static str,
    /// The distribution's key in an observation.
    pub key: &'static str,
    /// What is counted, for the legend, or nothing; and the label of the durations' axis.
    pub counted: &'static str,
    pub durations: &'static str,
    /// The axis of shares, given the greatest number of values that a condition has.
    pub shares: fn(u64) -> Axis,
    /// A distribution's corners, by duration: nanoseconds, and a share.
    pub corners: fn(&Distribution) -> Vec<(f64, f64)>,
}

impl Staircase {
    /// The figure; none where nothing was counted.
    pub fn figure(&self, study: &Study) -> Option<Figure> {
        let pooled: Vec<(usize, &str, Distribution)> = series(study)
            .map(|(index, condition)| (index, condition, pool(study, condition, self.key)))
            .filter(|(.., distribution)| distribution.count() > 0)
            .collect();
        let most = pooled.iter().map(|(.., distribution)| distribution.count()).max()?;
        let curves: Vec<(usize, Vec<(f64, f64)>)> =
            pooled.iter().map(|(index, _, distribution)| (*index, (self.corners)(distribution))).collect();
        let durations = || curves.iter().flat_map(|(_, corners)| corners).map(|(ns, _)| *ns);
        durations().next()?;
        let (shortest, longest) =
            (durations().fold(f64::INFINITY, f64::min), durations().fold(0.0, f64::max));
        let x = Axis::logarithmic(self.durations, shortest / 1.1, longest * 1.1, duration_label);
        let y = (self.shares)(most);
        let names: Vec<(usize, String)> = pooled
            .iter()
            .map(|(index, name, distribution)| {
                (*index, format!("{} ({}{})", legend_name(name), distribution.count(), self.counted))
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
            @for (index, corners) in &curves { (panel.staircase(*index, corners)) }
        };
        Some(Figure::new(
            study,
            self.name,
            Shows { what: self.title.into(), finding: headline::largest(study, self.metric) },
            "Pooled over all repetitions that count; a curve further right is slower.",
            (body, panel.bottom() + 2.0 * LINE + 10.0),
        ))
    }
}

fn pool(study: &Study, condition: &str, key: &str) -> Distribution {
    let mut pooled = Distribution::default();
    for run in study.runs_of(condition) {
        if let Some(distribution) = run.distributions.get(key) {
            pooled.merge(distribution);
        }
    }
    pooled
}
