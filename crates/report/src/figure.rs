//! Figures of a study, each as one SVG: inline in the page, or alone for a document.
//!
//! Drawn here rather than with a plotting crate because the page's colour scheme must reach the drawing (by
//! class), curves need fractions of a pixel, and every label's room must be known. Figures say nothing that
//! the record does not hold: what was not measured gives no figure.

pub mod axis;
mod canvas;
mod delay;
mod distribution;
mod over_time;
mod provision;
mod ratios;
mod recovery;
mod staircase;
pub mod style;
mod surface;
mod sweep;
mod tail;

pub use delay::delay;
pub use distribution::gp_distribution;
pub use over_time::{backlog, footprint, footprint_and_gp, unusable};
pub use provision::extra_memory;
pub use ratios::{published, ratios};
pub use recovery::recovered;
pub use surface::surface;
pub use sweep::sweep;
pub use tail::latency_tail;

use maud::{Markup, PreEscaped, html};
use reprieve_study::Study;

use crate::{facts, side_by_side};
use canvas::{WIDTH, px, text_width};

/// Room above a file's drawing for its heading.
const HEAD: f64 = 30.0;
/// Left and right of a heading.
const MARGIN: f64 = 12.0;
/// Lines of the caption in a file: their height, and how many letters of 11 px fit.
const CAPTION_LINE: f64 = 15.0;
const CAPTION_LETTERS: usize = 104;
/// Longer names are cut in legends.
const NAME_LETTERS: usize = 40;

/// One drawing with what it shows.
#[derive(Clone, Debug)]
pub struct Figure {
    /// For a file name: lower case, digits and hyphens.
    pub slug: String,
    /// What was found; where nothing is certain, what it shows.
    pub title: String,
    /// How to read it, and where and how it was measured.
    pub caption: String,
    height: f64,
    body: Markup,
}

/// What a figure is of.
struct Shows {
    what: String,
    finding: Option<String>,
}

impl Figure {
    fn new(study: &Study, slug: &str, shows: Shows, reading: &str, (body, height): (Markup, f64)) -> Figure {
        let source = facts::source(study);
        let fits = |title: &String| text_width(title) <= WIDTH - 2.0 * MARGIN;
        let (title, caption) = match shows.finding.filter(fits) {
            Some(finding) => (finding, format!("{}. {reading} {source}.", shows.what)),
            None => (shows.what, format!("{reading} {source}.")),
        };
        Figure { slug: slug_of(&format!("{}-{slug}", study.scenario.name)), title, caption, height, body }
    }

    /// For a page that has [`style::css`]'s rules.
    pub fn inline(&self) -> Markup {
        html! {
            svg class="figure" role="img" aria-label=(self.title) viewBox={ "0 0 " (WIDTH) " " (px(self.height)) } {
                (self.body)
            }
        }
    }

    /// A whole SVG file with background, heading and caption, light in every surrounding.
    pub fn standalone(&self) -> String {
        let caption = textwrap::wrap(&self.caption, CAPTION_LETTERS);
        let caption_top = HEAD + self.height + CAPTION_LINE;
        let height = caption_top + CAPTION_LINE * caption.len() as f64;
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" class="figure" role="img" aria-label=(self.title)
                width=(WIDTH) height=(px(height)) viewBox={ "0 0 " (WIDTH) " " (px(height)) } {
                title { (self.title) }
                style { (PreEscaped(style::css(&style::LIGHT))) }
                rect class="back" width="100%" height="100%" {}
                text x="12" y="24" style="font-weight:600" { (self.title) }
                g transform={ "translate(0," (HEAD) ")" } { (self.body) }
                @for (index, line) in caption.iter().enumerate() {
                    text x="12" y=(px(caption_top + CAPTION_LINE * index as f64)) class="muted" style="font-size:11px" {
                        (line)
                    }
                }
            }
        };
        svg.into_string() + "\n"
    }
}

/// Every figure that the study has data for, in the page's order.
pub fn all(study: &Study) -> Vec<Figure> {
    let mut figures: Vec<Figure> = recovered(study).into_iter().chain(footprint(study)).collect();
    // What the condition does comes before what it is compared with.
    let baseline = study.scenario.baseline();
    let names = || study.scenario.conditions.keys().map(String::as_str);
    let ordered = names().filter(|name| *name != baseline).chain(names().filter(|name| *name == baseline));
    figures.extend(ordered.filter_map(|name| footprint_and_gp(study, name)));
    let sweeps = || study.scenario.sweeps.keys();
    figures.extend(sweeps().filter_map(|name| delay(study, name)));
    // Ratios of many conditions and metrics are read in the table.
    let ratios = ratios(study).filter(|_| side_by_side::of(study).is_none());
    figures.extend(
        [
            latency_tail(study),
            gp_distribution(study),
            backlog(study),
            unusable(study),
            published(study),
            ratios,
        ]
        .into_iter()
        .flatten(),
    );
    figures.extend(sweeps().filter_map(|name| sweep(study, name)));
    figures
}

/// Conditions in the scenario's order, with the number of their series, which is the same in every figure. Those
/// that only serve to attribute a loss are not drawn.
fn series(study: &Study) -> impl Iterator<Item = (usize, &str)> {
    let conditions = study.scenario.conditions.keys().map(String::as_str).enumerate();
    conditions.filter(|(_, name)| !study.is_part(name))
}

fn legend_name(name: &str) -> String {
    if name.chars().count() <= NAME_LETTERS {
        return name.into();
    }
    name.chars().take(NAME_LETTERS - 1).chain(['…']).collect()
}

fn slug_of(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_safe_file_names() {
        assert_eq!(slug_of("../RCU memory--x"), "rcu-memory-x");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(legend_name("baseline"), "baseline");
        assert_eq!(legend_name(&"ä".repeat(50)).chars().count(), NAME_LETTERS);
    }
}
