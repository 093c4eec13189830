//! The numbers behind the figures of the sweeps.

use maud::{Markup, html};
use reprieve_study::Study;

use super::spread;
use crate::sweeps;

/// The numbers behind the sweeps' figures.
pub fn render(study: &Study) -> Markup {
    let sweeps = sweeps::of(study);
    html! {
        @if !sweeps.is_empty() {
            details {
                summary { "The sweeps in numbers" }
                @for swept in sweeps {
                    h3 { (swept.title) }
                    div class="scroll" { (table(&swept)) }
                    @if !swept.remark.is_empty() { p { (swept.remark) } }
                }
            }
        }
    }
}

fn table(swept: &sweeps::Swept) -> Markup {
    html! {
        table {
            tr {
                th { (swept.value_name) }
                @if swept.has_conditions { th { "condition" } }
                @for name in &swept.names { th class="number" { (name) } }
            }
            @for line in &swept.lines {
                tr {
                    td { (line.value) }
                    @if swept.has_conditions { td { (line.condition) } }
                    @for cell in &line.cells { td class="number" { (spread(cell)) } }
                }
            }
        }
    }
}
