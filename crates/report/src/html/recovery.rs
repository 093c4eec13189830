//! The scoreboard of remedies.

use maud::{Markup, html};
use reprieve_study::Study;

use crate::recovery;

/// A table for each metric that is scored, and one of costs; nothing for a study without a scoreboard.
pub fn render(study: &Study) -> Markup {
    let tables = study.recovery().map(|found| recovery::tables(&found)).unwrap_or_default();
    html! {
        @for table in &tables {
            h3 { (table.title) }
            div class="scroll" {
                table {
                    tr {
                        @for (index, name) in table.header.iter().enumerate() {
                            th class=[(index > 0).then_some("number")] { (name) }
                        }
                    }
                    @for row in &table.rows {
                        tr {
                            @for (index, cell) in row.iter().enumerate() {
                                td class=[(index > 0).then_some("number")] { (cell) }
                            }
                        }
                    }
                }
            }
            p { small { (table.remark) } }
        }
    }
}
