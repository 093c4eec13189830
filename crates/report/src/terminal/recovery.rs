//! The scoreboard of remedies.

use std::fmt::Write;

use comfy_table::{Attribute, Cell};
use reprieve_study::Recovery;

use super::{Options, clean, empty_table, finish, heading, wrapped};
use crate::recovery;

/// A table for each metric that is scored, and one of costs.
pub fn render(text: &mut String, found: &Recovery, options: &Options) {
    for table in recovery::tables(found) {
        let _ = writeln!(text);
        heading(text, &table.title, options);
        let mut out = empty_table(options);
        out.set_header(table.header.iter().map(|name| Cell::new(clean(name)).add_attribute(Attribute::Bold)));
        for row in &table.rows {
            out.add_row(row.iter().map(|cell| Cell::new(clean(cell))));
        }
        finish(text, out, 1);
        wrapped(text, "", &table.remark, 0, options);
    }
}
