//! The table of all conditions: as one where the terminal is wide enough, else as one for each group of columns; where not
//! even that fits, without ranges.

use std::fmt::Write;

use comfy_table::{Attribute, Cell};

use super::{NARROWEST, Options, clean, empty_table, finish, heading, letters, wrapped};
use crate::quantity::Spread;
use crate::side_by_side::{Column, SideBySide};

/// Heading of the rows.
const ROWS: &str = "condition";

/// Said where they are.
const NO_RANGES: &str = "Ranges and intervals are left out for want of columns.";

/// The table with its remarks.
pub fn render(text: &mut String, side: &SideBySide, options: &Options) {
    let _ = writeln!(text);
    heading(text, &side.title, options);
    let all: Vec<&Column> = side.groups.iter().flat_map(|group| &group.columns).collect();
    if !side.are_apart && fits(&side.rows, &all, options) {
        table(text, &side.rows, &all, true, options);
    } else {
        for group in &side.groups {
            wrapped(text, "", &format!("{}:", group.name), 0, options);
            let columns: Vec<&Column> = group.columns.iter().collect();
            let with_ranges = fits(&side.rows, &columns, options);
            table(text, &side.rows, &columns, with_ranges, options);
            if !with_ranges {
                wrapped(text, "", NO_RANGES, 0, options);
            }
        }
    }
    for remark in &side.remarks {
        wrapped(text, "", remark, 0, options);
    }
}

fn table(text: &mut String, rows: &[String], columns: &[&Column], with_ranges: bool, options: &Options) {
    let mut out = empty_table(options);
    let header = [ROWS].into_iter().chain(columns.iter().map(|column| column.name));
    out.set_header(header.map(|name| Cell::new(clean(name)).add_attribute(Attribute::Bold)));
    for (index, row) in rows.iter().enumerate() {
        let values = columns.iter().map(|column| Cell::new(lines(&column.cells[index], with_ranges)));
        out.add_row([Cell::new(clean(row))].into_iter().chain(values));
    }
    finish(text, out, 1);
}

/// A median, above its range if there is room.
fn lines(cell: &Option<Spread>, with_range: bool) -> String {
    match cell {
        None => "-".into(),
        Some(spread) if spread.range.is_empty() || !with_range => spread.median.clone(),
        Some(spread) => format!("{}\n{}", spread.median, spread.range),
    }
}

/// Whether the table with its ranges is no wider than the terminal. Every column has a space on both sides.
fn fits(rows: &[String], columns: &[&Column], options: &Options) -> bool {
    let cell = |cell: &Option<Spread>| lines(cell, true).lines().map(letters).max().unwrap_or(0);
    let column =
        |column: &&Column| column.cells.iter().map(cell).max().unwrap_or(0).max(letters(column.name)) + 2;
    let labels = rows.iter().map(|row| letters(&clean(row))).max().unwrap_or(0).max(ROWS.len());
    labels + columns.iter().map(column).sum::<usize>() <= options.width.max(NARROWEST)
}
