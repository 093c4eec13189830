//! Replayed recordings against what the recorded runs showed.

use maud::{Markup, html};
use reprieve_study::Study;

use crate::replays;

/// Replayed recordings against what the recorded runs showed.
pub fn render(study: &Study) -> Markup {
    html! {
        @if let Some(found) = replays::of(study) {
            h3 { (replays::TITLE) }
            p { (found.finding) }
            @for (condition, source) in &found.sources { p { small { b { (condition) } ": " (source) } } }
            div class="scroll" {
                table {
                    tr { @for name in replays::HEADER { th { (name) } } }
                    @for row in &found.rows { tr { @for cell in row { td { (cell) } } } }
                }
            }
            p { small { (replays::REMARK) } }
        }
    }
}
