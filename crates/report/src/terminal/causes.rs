//! Throughput lost under each condition, by cause.

use std::fmt::Write;

use comfy_table::{Attribute, Cell};
use reprieve_study::Study;

use super::{Options, clean, empty_table, finish, heading, wrapped};
use crate::causes::{self, Causes};

/// Throughput lost under each condition, by cause. `has_parts`: whether there are
/// conditions without a table of their own.
pub fn render(text: &mut String, study: &Study, has_parts: bool, options: &Options) {
    for causes in causes::of(study) {
        let _ = writeln!(text);
        heading(text, &causes.title, options);
        wrapped(text, "", &causes.loss, 0, options);
        table(text, &causes, options);
        wrapped(text, "", &causes.remark, 0, options);
    }
    if has_parts {
        wrapped(text, "", "The runs behind it are compared in full on the page (--html).", 0, options);
    }
}

fn table(text: &mut String, causes: &Causes, options: &Options) {
    let mut out = empty_table(options);
    out.set_header(causes::HEADER.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for line in &causes.lines {
        let share = format!("{} {}", line.share, line.interval);
        let cells = [&line.cause, &line.baseline, &line.condition, &line.lost, share.trim()];
        out.add_row(cells.map(|cell| Cell::new(clean(cell))));
    }
    finish(text, out, 1);
}
