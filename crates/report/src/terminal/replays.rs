//! Replayed recordings against what the recorded runs showed.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, ColumnConstraint};
use reprieve_study::Study;

use super::{LEAST_LABEL, Options, clean, empty_table, finish_with, heading, wrapped};
use crate::replays::{self, HEADER, REMARK, TITLE};

/// What it came to, and a line for each figure.
pub fn render(text: &mut String, study: &Study, options: &Options) {
    let Some(found) = replays::of(study) else { return };
    let _ = writeln!(text);
    heading(text, TITLE, options);
    for (condition, source) in &found.sources {
        wrapped(text, &format!("{}: ", clean(condition)), source, 2, options);
    }
    wrapped(text, "", &found.finding, 0, options);
    if found.rows.is_empty() {
        return;
    }
    let mut out = empty_table(options);
    out.set_header(HEADER.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for row in &found.rows {
        out.add_row(row.each_ref().map(|cell| Cell::new(clean(cell))));
    }
    finish_with(text, out, 2, ColumnConstraint::LowerBoundary(LEAST_LABEL));
    wrapped(text, "", REMARK, 0, options);
}
