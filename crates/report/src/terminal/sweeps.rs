//! What a sweep's values change, a table for each sweep.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, CellAlignment};
use reprieve_study::Study;

use super::{NARROWEST, Options, clean, empty_table, finish, heading, letters, wrapped};
use crate::quantity::Spread;
use crate::sweeps::{self, Line, Swept};

/// A table for each sweep.
pub fn render(text: &mut String, study: &Study, options: &Options) {
    for swept in sweeps::of(study) {
        let _ = writeln!(text);
        heading(text, &swept.title, options);
        table(text, &swept, options);
    }
}

fn table(text: &mut String, swept: &Swept, options: &Options) {
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
