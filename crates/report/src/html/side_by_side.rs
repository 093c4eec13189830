//! All conditions side by side.

use maud::{Markup, html};

use super::above;
use crate::side_by_side::SideBySide;

/// The table of all conditions; each group of columns below the other, so that none is out of sight.
pub fn render(side: &SideBySide) -> Markup {
    html! {
        h3 { (side.title) }
        @for group in &side.groups {
            h4 { (group.name) }
            div class="scroll" {
                table {
                    tr {
                        th { "Condition" }
                        @for column in &group.columns { th class="number" title=(column.definition) { (column.name) } }
                    }
                    @for (index, row) in side.rows.iter().enumerate() {
                        tr {
                            td { (row) }
                            @for column in &group.columns { td class="number" { (above(&column.cells[index])) } }
                        }
                    }
                }
            }
        }
        @for remark in &side.remarks { p { small { (remark) } } }
    }
}
