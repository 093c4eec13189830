//! Cases by conditions, a table for each metric, and the published ratios beside ours.

use maud::{Markup, html};
use reprieve_study::Study;

use super::above;
use crate::grids;

/// A table for each metric of a study with cases, and one of published ratios.
pub fn render(study: &Study) -> Markup {
    let pairs = grids::pairs(study);
    html! {
        @for shown in grids::of(study) {
            h3 title=(shown.metric.definition) { (shown.metric.label) }
            div class="scroll" {
                table {
                    tr {
                        th { "Case" }
                        @for name in &shown.conditions { th class="number" { (name) } }
                    }
                    @for (case, cells) in &shown.rows {
                        tr {
                            td { (case) }
                            @for cell in cells { td class="number" { (above(cell)) } }
                        }
                    }
                }
            }
        }
        @if !pairs.is_empty() {
            h3 { "Published ratios" }
            div class="scroll" {
                table {
                    tr { @for name in grids::PAIR_HEADER { th { (name) } } }
                    @for line in &pairs { tr { @for cell in line { td { (cell) } } } }
                }
            }
        }
    }
}
