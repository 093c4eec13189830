//! The smaller tables of a study: throughput lost, by cause; sweeps.

use maud::{Markup, html};
use reprieve_study::Study;

use super::{comparison_table, spread};
use crate::{causes, sweeps};

/// Throughput lost under each condition, by cause, and the conditions behind it in full.
pub fn causes(study: &Study) -> Markup {
    let parts: Vec<_> =
        study.comparisons.iter().filter(|comparison| study.is_part(&comparison.condition)).collect();
    html! {
        @for causes in causes::of(study) {
            h3 { (causes.title) }
            p { (causes.loss) }
            div class="scroll" {
                table {
                    tr {
                        th { (causes::HEADER[0]) }
                        @for name in &causes::HEADER[1..] { th class="number" { (name) } }
                    }
                    @for line in &causes.lines {
                        tr {
                            td { (line.cause) }
                            td class="number" { (line.throughput) }
                            td class="number" { (line.regained) }
                            td class="number" { (line.share) " " small { (line.interval) } }
                        }
                    }
                }
            }
            @if !causes.remark.is_empty() { p { small { (causes.remark) } } }
        }
        @if !parts.is_empty() {
            details {
                summary { "The conditions with causes left out, in full" }
                @for comparison in parts { (comparison_table(comparison)) }
            }
        }
    }
}

/// The numbers behind the sweeps' figures.
pub fn sweeps(study: &Study) -> Markup {
    let sweeps = sweeps::of(study);
    html! {
        @if !sweeps.is_empty() {
            details {
                summary { "The sweeps in numbers" }
                @for swept in sweeps {
                    h3 { (swept.title) }
                    div class="scroll" { (table(&swept)) }
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
