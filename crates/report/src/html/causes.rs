//! Throughput lost under each condition, by cause.

use maud::{Markup, html};
use reprieve_study::Study;

use super::comparisons::comparison_table;
use crate::causes;

/// Throughput lost under each condition, by cause, and the conditions behind it in full.
pub fn render(study: &Study) -> Markup {
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
                            td class="number" { (line.baseline) }
                            td class="number" { (line.condition) }
                            td class="number" { (line.lost) }
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
