//! One self-contained page: no script, no external resource. Every string of a record is escaped by `maud`,
//! because scenario files and what a guest says are not to be trusted.

mod causes;
mod comparisons;
mod grids;
mod holdouts;
mod provision;
mod recovery;
mod replays;
mod side_by_side;
mod style;
mod surface;
mod sweeps;

pub use provision::render_provision;
pub use surface::render_surfaces;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use reprieve_study::{GroundKind, Record, Study, metric};

use crate::layout::Layout;
use crate::quantity::Spread;
use crate::{facts, figure, headline, table};

const TITLE: &str = "What descheduled vCPUs do to grace periods and memory";
const PROBLEM: &str = "While a hypervisor keeps a vCPU descheduled that an RCU grace period still waits for, that grace \
                       period cannot end: whoever waits for it is delayed, and memory whose freeing waits for it \
                       piles up.";
const THREADS_TITLE: &str = "How long deleted memory waits for descheduled readers";
const THREADS_PROBLEM: &str = "While the operating system keeps a thread descheduled that may still hold a reference to deleted \
                               memory, that memory cannot be freed: whoever waits for it is delayed, and memory piles \
                               up.";

/// The page of a record.
pub fn render(record: &Record) -> String {
    let titles: Vec<&str> = record.studies.iter().map(|study| study.scenario.name.as_str()).collect();
    let on_threads = |study: &Study| study.scenario.ground == GroundKind::Threads;
    let (title, problem) = match !record.studies.is_empty() && record.studies.iter().all(on_threads) {
        true => (THREADS_TITLE, THREADS_PROBLEM),
        false => (TITLE, PROBLEM),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { "Reprieve: " (titles.join(", ")) }
                style { (PreEscaped(style::sheet())) }
            }
            body {
                main {
                    h1 { (title) }
                    p { (problem) }
                    (contents(record))
                    @for study in &record.studies { (section(study)) }
                    (definitions())
                    h2 id="again" { "Run it again" }
                    pre { code { (record.command) } }
                    p class="muted" { "Written by " (record.program) "." }
                }
            }
        }
    };
    page.into_string()
}

/// Links to the studies and their figures, whose titles say what was found.
fn contents(record: &Record) -> Markup {
    html! {
        nav {
            ul {
                @for study in &record.studies {
                    li {
                        a href={ "#" (study.scenario.name) } { (study.scenario.title) }
                        (folded("Figures", html! {
                            ul {
                                @for figure in figure::all(study) {
                                    li { a href={ "#" (figure.slug) } { (figure.title) } }
                                }
                            }
                        }))
                    }
                }
                li { a href="#definitions" { "Definitions" } }
                li { a href="#again" { "Run it again" } }
            }
        }
    }
}

/// A study: what was found, the figures, and folded what they are made from.
fn section(study: &Study) -> Markup {
    html! {
        section id=(study.scenario.name) {
            h2 { (study.scenario.title) }
            @if let Some(why) = &study.ended_early { p class="differs" { "Ended early: " (why) } }
            @for sentence in headline::of(study) { p class="lead" { (sentence.replace(" %", "\u{a0}%")) } }
            p class="muted" {
                "Scenario " code { (study.scenario.name) } ". "
                @if study.is_simulated() { "Simulated: " }
                (facts::short(study)) "."
            }
            div class="figures" {
                @for figure in figure::all(study) {
                    figure id=(figure.slug) {
                        h4 { (figure.title) }
                        div class="scroll" { (figure.inline()) }
                        figcaption { (figure.caption) }
                    }
                }
            }
            (recovery::render(study))
            (folded("All metrics", html! {
                @match Layout::of(study) {
                    Layout::SideBySide(side) => (side_by_side::render(&side)),
                    Layout::Grids => (grids::render(study)),
                    Layout::Cases(cases) => @for (name, study) in &cases {
                        h3 { "Case " (name) }
                        (comparisons::render(study))
                    },
                    Layout::Comparisons => (comparisons::render(study)),
                }
                (published(study))
            }))
            (sweeps::render(study))
            (replays::render(study))
            (holdouts::render(study))
            (folded(if study.is_simulated() { "What was simulated" } else { "Where and how it was measured" }, html! {
                div class="scroll" {
                    table class="facts" {
                        @for fact in facts::of(study) { tr { td { (fact.name) } td { (fact.value) } } }
                    }
                }
            }))
        }
    }
}

/// What is shown when it is asked for; nothing if it is empty.
fn folded(summary: &str, content: Markup) -> Markup {
    html! {
        @if !content.0.is_empty() { details { summary { (summary) } (content) } }
    }
}

/// A median with its range.
fn spread(spread: &Option<Spread>) -> Markup {
    match spread {
        None => html! { "–" },
        Some(spread) => html! { (spread.median) " " small { (spread.range) } },
    }
}

/// A median above its range.
fn above(spread: &Option<Spread>) -> Markup {
    match spread {
        None => html! { "–" },
        Some(spread) => html! { (spread.median) br; small { (spread.range) } },
    }
}

fn published(study: &Study) -> Markup {
    let published = &study.scenario.published;
    html! {
        @if let Some(remark) = table::unmeasured(study) { p { (remark) } }
        @if !published.source.is_empty() { p { "Published figures: " (published.source) } }
        @if !published.statements.is_empty() {
            p { "Also stated there:" }
            ul { @for statement in &published.statements { li { (statement) } } }
        }
        @if !published.fitted.is_empty() {
            p { "Fitted: chosen with these figures in view: " (published.fitted.join("; ")) "." }
        }
    }
}

fn definitions() -> Markup {
    html! {
        h2 id="definitions" { "Definitions" }
        details {
            summary { "What each metric counts" }
            dl {
                @for metric in metric::ALL {
                    dt { (metric.label) " " small { code { (metric.id) } } }
                    dd { (metric.definition) }
                }
            }
        }
    }
}
