//! The tail of latencies, pooled over a condition's repetitions: which share of them is longer than a latency. Both axes are
//! logarithmic, so that the rarest are seen as well as the most.

use maud::html;
use reprieve_study::observation::LATENCIES;
use reprieve_study::{Distribution, Study};

use super::axis::{Axis, duration_label};
use super::canvas::{LINE, Panel, RIGHT_MARGIN, left_of, legend};
use super::distribution::pool;
use super::{Figure, legend_name, series};

const HEIGHT: f64 = 230.0;

/// Share of latencies that were longer, one curve for each condition.
pub fn latency_tail(study: &Study) -> Option<Figure> {
    let pooled: Vec<(usize, &str, Distribution)> = series(study)
        .map(|(index, condition)| (index, condition, pool(study, condition, LATENCIES)))
        .filter(|(.., distribution)| distribution.count() > 0)
        .collect();
    let most = pooled.iter().map(|(.., distribution)| distribution.count()).max()?;
    let curves: Vec<(usize, Vec<(f64, f64)>)> =
        pooled.iter().map(|(index, _, distribution)| (*index, points(distribution))).collect();
    let latencies = || curves.iter().flat_map(|(_, points)| points).map(|(ns, _)| *ns);
    let (shortest, longest) = (latencies().fold(f64::INFINITY, f64::min), latencies().fold(0.0, f64::max));
    let x = Axis::logarithmic("Latency", shortest / 1.1, longest * 1.1, duration_label);
    let y = Axis::logarithmic("Share of latencies that are longer", 1.0 / most as f64, 1.0, percent);
    let names: Vec<(usize, String)> = pooled
        .iter()
        .map(|(index, name, distribution)| {
            (*index, format!("{} ({})", legend_name(name), distribution.count()))
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
        "latency-tail",
        "Tail of the latencies".into(),
        "Pooled over all repetitions that count; a curve further right is slower.",
        (body, panel.bottom() + 2.0 * LINE + 10.0),
    ))
}

/// A power of ten as per cent, without the noise of the multiplication.
fn percent(share: f64) -> String {
    format!("{} %", (share * 1e10).round() / 1e8)
}

/// From the shortest, which all others are at least as long as.
fn points(distribution: &Distribution) -> Vec<(f64, f64)> {
    let at_most = distribution.cumulative();
    let shortest = at_most.first().map(|(ns, _)| (*ns as f64, 1.0));
    shortest.into_iter().chain(at_most.into_iter().map(|(ns, share)| (ns as f64, 1.0 - share))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round_and_curves_begin_at_the_whole() {
        assert_eq!([1.0, 0.1, 1e-3, 1e-6].map(percent), ["100 %", "10 %", "0.1 %", "0.0001 %"]);
        let mut distribution = Distribution::default();
        distribution.extend([1_000_000, 1_000_000, 2_000_000, 8_000_000]);
        let points = points(&distribution);
        assert_eq!(points.iter().map(|(_, share)| *share).collect::<Vec<_>>(), [1.0, 0.5, 0.25, 0.0]);
        assert_eq!(points[0].0, points[1].0);
    }
}
