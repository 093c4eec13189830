//! The page of a sweep's metrics.

use maud::{DOCTYPE, PreEscaped, html};

use super::style;
use crate::figure;
use crate::surface::Surfaced;

/// The page; `command` is what makes it again, `facts` what the runs are of.
pub fn render_surfaces(title: &str, surfaces: &[Surfaced<'_>], facts: &str, command: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { "Reprieve: " (title) }
                style { (PreEscaped(style::sheet())) }
            }
            body { main {
                h1 { (title) }
                @for surface in surfaces { p class="lead" { (surface.title()) "." } }
                p class="muted" { (facts) }
                div class="figures" {
                    @for figure in surfaces.iter().filter_map(figure::surface) {
                        figure id=(figure.slug) {
                            h4 { (figure.title) }
                            div class="scroll" { (figure.inline()) }
                            figcaption { (figure.caption) }
                        }
                    }
                }
                @for surface in surfaces {
                    h2 { (surface.quantity()) }
                    div class="scroll" {
                        table {
                            tr { @for head in surface.heads() { th { (head) } } }
                            @for line in surface.lines() { tr { @for cell in line { td class="number" { (cell) } } } }
                        }
                    }
                }
                h2 id="again" { "Run it again" }
                pre { code { (command) } }
            } }
        }
    };
    page.into_string()
}
