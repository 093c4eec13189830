//! The page of an estimate of memory.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use reprieve_study::provision::{Against, Provision};

use super::style;
use crate::figure;
use crate::provision::{self, AGAINST_HEADER, HEADER, READING};

/// The page; `command` is what makes it again.
pub fn render_provision(answer: &Provision, command: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { "Reprieve: memory by overcommit ratio" }
                style { (PreEscaped(style::sheet())) }
            }
            body { main {
                h1 { "How much memory this VM needs beside busy neighbours" }
                @for sentence in &answer.headline {
                    p class="lead" { (sentence) }
                }
                p class="muted" { "Simulated. " (answer.source) "." }
                @if let Some(figure) = figure::extra_memory(answer) {
                    div class="figures" {
                        figure id=(figure.slug) {
                            h4 { (figure.title) }
                            div class="scroll" { (figure.inline()) }
                            figcaption { (figure.caption) }
                        }
                    }
                }
                @if let Some(found) = &answer.against { (measured(found)) }
                h2 { "Conditions" }
                (conditions(answer))
                p class="muted" { (READING) }
                @if !answer.flags.is_empty() {
                    h2 { "What is weak about it" }
                    ul { @for flag in &answer.flags { li { (flag) } } }
                }
                h2 id="again" { "Run it again" }
                pre { code { (command) } }
                p class="muted" { (answer.undisturbed.runs) " windows of each condition, seed " (answer.seed) ", result " (answer.result_hash) "." }
            } }
        }
    };
    page.into_string()
}

fn conditions(answer: &Provision) -> Markup {
    html! {
        div class="scroll" {
            table {
                tr { @for name in HEADER { th { (name) } } }
                @for row in &answer.rows {
                    tr { @for (above, below) in provision::cells(row) { td class="number" { (above) br; small { (below) } } } }
                }
            }
        }
    }
}

fn measured(found: &Against) -> Markup {
    html! {
        h2 { "Beside measured runs" }
        div class="scroll" {
            table {
                tr { @for name in AGAINST_HEADER { th { (name) } } }
                @for checked in &found.checked {
                    tr { @for cell in provision::against_cells(checked) { td { (cell) } } }
                }
            }
        }
        p { small { (provision::against_reading(found)) } }
    }
}
