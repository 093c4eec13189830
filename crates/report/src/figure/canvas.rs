//! Drawing: panels with grid and axes, curves, legends, as SVG elements. All text is escaped by `maud`, all
//! colours come from classes, so that the page's scheme applies.

use maud::{Markup, html};
use reprieve_study::Timeline;

use super::axis::Axis;
use super::style::SERIES;

/// Width of every figure, in pixels.
pub const WIDTH: f64 = 760.0;
/// Height of a line of text.
pub const LINE: f64 = 18.0;
/// An upper bound of a letter's mean width at 12 px, over the fonts of the style sheet and their fallbacks.
const LETTER: f64 = 7.2;
/// Pixels between the plot and the labels beside it.
pub const GAP: f64 = 8.0;
/// Room on the right of a plot where nothing stands beside it.
pub const RIGHT_MARGIN: f64 = 20.0;

/// Room that a text takes at most.
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// A rectangle to plot into, with its axes.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Height.
    pub height: f64,
    /// Pixels from the right edge of the plot to that of the figure.
    pub right: f64,
    /// Horizontal axis.
    pub x: &'a Axis,
    /// Vertical axis.
    pub y: &'a Axis,
}

/// Left edge that leaves room for the labels of these vertical axes.
pub fn left_of(axes: &[&Axis]) -> f64 {
    let labels = axes.iter().flat_map(|axis| &axis.ticks).map(|tick| text_width(&tick.label));
    labels.fold(20.0, f64::max) + GAP + 12.0
}

impl Panel<'_> {
    /// Width of the plot.
    pub fn width(&self) -> f64 {
        WIDTH - self.right - self.left
    }

    /// Lower edge.
    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Pixel of a point.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + self.x.place(x) * self.width(), self.bottom() - self.y.place(y) * self.height)
    }

    /// Grid, vertical axis and its title above the plot; the horizontal axis if `with_x`.
    pub fn frame(&self, with_x: bool) -> Markup {
        let right = self.left + self.width();
        html! {
            text x=(px(self.left)) y=(px(self.top - 10.0)) class="muted" { (self.y.title) }
            @for tick in &self.y.ticks {
                @let y = self.at(0.0, tick.at).1;
                line class="grid" x1=(px(self.left)) x2=(px(right)) y1=(px(y)) y2=(px(y)) {}
                text x=(px(self.left - GAP)) y=(px(y + 4.0)) text-anchor="end" class="muted" { (tick.label) }
            }
            @for tick in &self.x.ticks {
                @let x = self.at(tick.at, 0.0).0;
                line class="grid" x1=(px(x)) x2=(px(x)) y1=(px(self.top)) y2=(px(self.bottom())) {}
                @if with_x {
                    text x=(px(x)) y=(px(self.bottom() + LINE)) text-anchor="middle" class="muted" { (tick.label) }
                }
            }
            line class="base" x1=(px(self.left)) x2=(px(right)) y1=(px(self.bottom())) y2=(px(self.bottom())) {}
            @if with_x {
                text x=(px(right)) y=(px(self.bottom() + 2.0 * LINE)) text-anchor="end" class="muted" { (self.x.title) }
            }
        }
    }

    /// A line through the points of a timeline.
    pub fn curve(&self, series: usize, timeline: &Timeline) -> Markup {
        let points = timeline.t_ns.iter().zip(&timeline.values).filter(|(_, value)| value.is_finite());
        let path = points.map(|(t_ns, value)| point(self.at(*t_ns as f64, *value))).collect::<Vec<_>>();
        html! { polyline class={ "curve s" (series % SERIES) } points=(path.join(" ")) {} }
    }

    /// A vertical line from zero up to each value: for events that have a size.
    pub fn stems(&self, series: usize, timeline: &Timeline) -> Markup {
        let points = timeline.t_ns.iter().zip(&timeline.values).filter(|(_, value)| value.is_finite());
        let stem = |(t_ns, value): (&u64, &f64)| {
            format!("M{}V{}", point(self.at(*t_ns as f64, 0.0)), px(self.at(0.0, *value).1))
        };
        html! { path class={ "stems s" (series % SERIES) } d=(points.map(stem).collect::<String>()) {} }
    }

    /// A staircase through points of ascending `x`, from the horizontal axis up. Steps closer together than
    /// half a pixel are drawn as one. The last step goes on to the right edge.
    pub fn staircase(&self, series: usize, points: &[(f64, f64)]) -> Markup {
        let Some(first) = points.first() else {
            return html! {};
        };
        let mut path = format!("M{}", point(self.at(first.0, 0.0)));
        let mut drawn = self.at(first.0, 0.0);
        for (index, (x, y)) in points.iter().enumerate() {
            let here = self.at(*x, *y);
            if here.0 - drawn.0 >= 0.5 || drawn.1 - here.1 >= 0.5 || index + 1 == points.len() {
                path += &format!("H{}V{}", px(here.0), px(here.1));
                drawn = here;
            }
        }
        path += &format!("H{}", px(self.left + self.width()));
        html! { path class={ "curve s" (series % SERIES) } d=(path) {} }
    }
}

/// A legend of curves, wrapped to the width; and the height it takes.
pub fn legend(top: f64, names: &[(usize, String)]) -> (Markup, f64) {
    let (mut x, mut y) = (12.0, top);
    let mut places = Vec::new();
    for (series, name) in names {
        let needed = 26.0 + text_width(name) + 18.0;
        if x > 12.0 && x + needed > WIDTH {
            (x, y) = (12.0, y + LINE);
        }
        places.push((x, y, *series % SERIES, name));
        x += needed;
    }
    let markup = html! {
        @for (x, y, series, name) in places {
            line class={ "curve s" (series) } x1=(px(x)) x2=(px(x + 20.0)) y1=(px(y - 4.0)) y2=(px(y - 4.0)) {}
            text x=(px(x + 26.0)) y=(px(y)) { (name) }
        }
    };
    (markup, y - top + LINE)
}

fn point((x, y): (f64, f64)) -> String {
    format!("{},{}", px(x), px(y))
}

/// A coordinate, to a tenth of a pixel.
pub fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), String::from)
}
