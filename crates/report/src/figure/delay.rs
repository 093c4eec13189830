//! How long a delete waits for its free, over the values of a sweep: one line a condition on a logarithmic axis, its name
//! beside its last point, because more lines than there are colours can be told apart only so. Lines have the colours in the
//! sweep's order, not in that of all conditions: neighbours differ.

use maud::{Markup, html};
use reprieve_study::swept::Curve;
use reprieve_study::{Study, metric, statistics};

use super::axis::{Axis, duration_label};
use super::canvas::{GAP, LINE, Panel, left_of, px, text_width};
use super::sweep::{Values, line};
use super::{Figure, Shows, legend_name};
use crate::sweeps;

/// Least height of the plot; more lines than it has room for names make it higher.
const HEIGHT: f64 = 300.0;
/// Between a line's last point and its name.
const LEADER: f64 = 22.0;

/// The median delay over the sweep of that name.
pub fn delay(study: &Study, name: &str) -> Option<Figure> {
    let swept = study.scenario.sweeps.get(name)?;
    let curves = study.curves(name, metric::DELAY_P50);
    let y = vertical(&curves)?;
    let values = Values::of(swept);
    let names: Vec<String> = curves.iter().map(|curve| legend_name(&curve.condition)).collect();
    let widest = names.iter().map(|name| text_width(name)).fold(0.0, f64::max);
    let mut panel = Panel {
        left: left_of(&[&y]),
        top: 2.0 * LINE,
        height: HEIGHT.max(LINE * curves.len() as f64),
        right: LEADER + GAP + widest,
        x: &values.axis,
        y: &y,
    };
    let x = values.labelled(panel.width());
    panel.x = &x;
    let body = html! {
        (panel.frame(true))
        @for (number, curve) in curves.iter().enumerate() { (line(&panel, number, curve, &values)) }
        (labels(&panel, &curves, &names, &values))
    };
    let reading = "Median delay from a delete to its free; medians over repetitions, bars from the smallest to the largest \
                   value.";
    Some(Figure::new(
        study,
        &format!("delay-{name}"),
        Shows { what: format!("Delete-free delay: {}", sweeps::title(name, swept)), finding: None },
        reading,
        (body, panel.bottom() + 2.0 * LINE + 10.0),
    ))
}

/// Around all values; `None` when there are none.
fn vertical(curves: &[Curve]) -> Option<Axis> {
    let values = curves.iter().flat_map(|curve| &curve.points).flat_map(|point| &point.values).copied();
    let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some(Axis::logarithmic("Delete-free delay, median", low / 1.3, high * 1.3, duration_label))
}

/// Each line's name on the right, joined to its last point.
fn labels(panel: &Panel<'_>, curves: &[Curve], names: &[String], values: &Values) -> Markup {
    let last = |curve: &Curve| {
        let point = curve.points.iter().max_by(|a, b| a.at.total_cmp(&b.at))?;
        Some(panel.at(values.at(point.at), statistics::median(&point.values)?))
    };
    let mut ends: Vec<((f64, f64), &String)> =
        curves.iter().zip(names).filter_map(|(curve, name)| Some((last(curve)?, name))).collect();
    ends.sort_by(|((_, a), _), ((_, b), _)| a.total_cmp(b));
    let wanted: Vec<f64> = ends.iter().map(|((_, y), _)| *y).collect();
    let places = apart(&wanted, panel.top, panel.bottom());
    let right = panel.left + panel.width();
    html! {
        @for (((x, y), name), place) in ends.iter().zip(places) {
            polyline class="base" style="fill:none"
                points={ (px(*x)) "," (px(*y)) " " (px(right)) "," (px(*y)) " " (px(right + LEADER)) "," (px(place)) } {}
            text x=(px(right + LEADER + GAP / 2.0)) y=(px(place + 4.0)) { (name) }
        }
    }
}

/// Places at least a line apart, each as near as can be to where it is wanted (ascending): pushed down from the upper
/// end, then up from the lower end.
fn apart(wanted: &[f64], upper: f64, lower: f64) -> Vec<f64> {
    let mut free_from = upper;
    let mut places: Vec<f64> = Vec::new();
    for place in wanted {
        places.push(place.max(free_from));
        free_from = places[places.len() - 1] + LINE;
    }
    let mut free_to = lower;
    for place in places.iter_mut().rev() {
        *place = place.min(free_to);
        free_to = *place - LINE;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_a_line_apart_and_within_the_plot() {
        for wanted in [vec![10.0; 6], vec![100.0; 6], vec![10.0, 11.0, 90.0, 91.0, 92.0], vec![50.0], vec![]]
        {
            let places = apart(&wanted, 0.0, 100.0);
            assert!(places.windows(2).all(|two| two[1] - two[0] >= LINE - 1e-9), "{places:?}");
            assert!(places.iter().all(|place| (0.0..=100.0).contains(place)), "{places:?}");
        }
        assert_eq!(apart(&[10.0, 60.0], 0.0, 100.0), [10.0, 60.0], "what is clear stays");
    }
}
