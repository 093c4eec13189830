//! Cases by conditions, a table for each metric, and the published ratios beside ours.

use std::fmt::Write;

use comfy_table::{Attribute, Cell};
use reprieve_study::Study;

use super::{Options, clean, empty_table, finish, heading};
use crate::grids;
use crate::quantity::Spread;

/// A table for each metric of a study with cases, and one of published ratios.
pub fn render(text: &mut String, study: &Study, options: &Options) {
    for shown in grids::of(study) {
        let _ = writeln!(text);
        heading(text, shown.metric.label, options);
        let mut out = empty_table(options);
        let header = ["case"].into_iter().chain(shown.conditions.iter().map(String::as_str));
        out.set_header(header.map(|name| Cell::new(clean(name)).add_attribute(Attribute::Bold)));
        for (case, cells) in &shown.rows {
            let first = Cell::new(clean(case));
            out.add_row([first].into_iter().chain(cells.iter().map(|cell| Cell::new(median(cell)))));
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

fn median(spread: &Option<Spread>) -> String {
    spread.as_ref().map_or("-".into(), |spread| spread.median.clone())
}
