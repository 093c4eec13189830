//! The smaller tables of a study: throughput lost, by cause; sweeps.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, Table};
use reprieve_study::Study;

use super::{NARROWEST, Options, clean, empty_table, heading, letters, wrapped};
use crate::causes::{self, Causes};
use crate::grids;
use crate::quantity::Spread;
use crate::sweeps::{self, Line, Swept};

/// Throughput lost under each condition, by cause. `has_parts`: whether there are
/// conditions without a table of their own.
pub fn causes(text: &mut String, study: &Study, has_parts: bool, options: &Options) {
    for causes in causes::of(study) {
        let _ = writeln!(text);
        heading(text, &causes.title, options);
        wrapped(text, "", &causes.loss, 0, options);
        causes_table(text, &causes, options);
        wrapped(text, "", &causes.remark, 0, options);
    }
    if has_parts {
        wrapped(text, "", "The runs behind it are compared in full on the page (--html).", 0, options);
    }
}

fn causes_table(text: &mut String, causes: &Causes, options: &Options) {
    let mut out = empty_table(options);
    out.set_header(causes::HEADER.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for line in &causes.lines {
        let share = format!("{} {}", line.share, line.interval);
        let cells = [&line.cause, &line.baseline, &line.condition, &line.lost, share.trim()];
        out.add_row(cells.map(|cell| Cell::new(clean(cell))));
    }
    finish(text, out, 1);
}

/// A table for each metric of a study with cases, and one of published ratios.
pub fn grids(text: &mut String, study: &Study, options: &Options) {
    for shown in grids::of(study) {
        let _ = writeln!(text);
        heading(text, shown.metric.label, options);
        let mut out = empty_table(options);
        let header = ["case"].into_iter().chain(shown.conditions.iter().map(String::as_str));
        out.set_header(header.map(|name| Cell::new(clean(name)).add_attribute(Attribute::Bold)));
        for (case, cells) in &shown.rows {
            let first = Cell::new(clean(case));
            out.add_row([first].into_iter().chain(cells.iter().map(|cell| Cell::new(spread(cell, false)))));
        }
        finish(text, out, 1);
    }
    let pairs = grids::pairs(study);
    if pairs.is_empty() {
        return;
    }
    let _ = writeln!(text);
    heading(text, "Published ratios", options);
    let mut out = empty_table(options);
    out.set_header(grids::PAIR_HEADER.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for line in &pairs {
        out.add_row(line.each_ref().map(|cell| Cell::new(clean(cell))));
    }
    finish(text, out, 2);
}

/// A table for each sweep.
pub fn sweeps(text: &mut String, study: &Study, options: &Options) {
    for swept in sweeps::of(study) {
        let _ = writeln!(text);
        heading(text, &swept.title, options);
        sweep_table(text, &swept, options);
    }
}

fn sweep_table(text: &mut String, swept: &Swept, options: &Options) {
    let labels = 1 + usize::from(swept.has_conditions);
    let with_ranges = width_with_ranges(swept) <= options.width.max(NARROWEST);
    let mut out = empty_table(options);
    let mut header = vec![swept.value_name.as_str()];
    header.extend(swept.has_conditions.then_some("condition"));
    header.extend(swept.names.iter().copied());
    out.set_header(header.iter().map(|name| Cell::new(clean(name)).add_attribute(Attribute::Bold)));
    for line in &swept.lines {
        let mut cells = vec![Cell::new(clean(&line.value)).set_alignment(CellAlignment::Right)];
        cells.extend(swept.has_conditions.then(|| Cell::new(clean(&line.condition))));
        cells.extend(line.cells.iter().map(|cell| Cell::new(spread(cell, with_ranges))));
        out.add_row(cells);
    }
    finish(text, out, labels);
    let ranges = if with_ranges { " (smallest–largest)" } else { "" };
    wrapped(text, "", &format!("Medians over repetitions{ranges}. {}", swept.remark), 0, options);
}

fn spread(spread: &Option<Spread>, with_range: bool) -> String {
    match spread {
        None => "-".into(),
        Some(spread) if spread.range.is_empty() || !with_range => spread.median.clone(),
        Some(spread) => format!("{} {}", spread.median, spread.range),
    }
}

/// Width of the table when every value has its range beside it.
fn width_with_ranges(swept: &Swept) -> usize {
    let widest = |cells: &dyn Fn(&Line) -> usize, header: &str| {
        swept.lines.iter().map(cells).max().unwrap_or(0).max(letters(header)) + 2
    };
    let columns = swept.names.iter().enumerate();
    let values: usize =
        columns.map(|(column, name)| widest(&|line| letters(&spread(&line.cells[column], true)), name)).sum();
    let condition =
        if swept.has_conditions { widest(&|line| letters(&line.condition), "condition") } else { 0 };
    widest(&|line| letters(&line.value), &swept.value_name) + condition + values
}

/// Ends a table: labels to the left, numbers to the right.
pub(super) fn finish(text: &mut String, out: Table, labels: usize) {
    finish_with(text, out, labels, ColumnConstraint::ContentWidth);
}

/// The same; labels are as wide as that says.
pub(super) fn finish_with(text: &mut String, mut out: Table, labels: usize, width: ColumnConstraint) {
    for (index, column) in out.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 1 }, 0));
        column.set_constraint(if index < labels { width } else { ColumnConstraint::ContentWidth });
        if index >= labels {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(text, "{}", out.trim_fmt());
}
