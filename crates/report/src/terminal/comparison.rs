//! One condition against the baseline, or one record against another: a line for each metric, with ranges and p-values.

use std::borrow::Cow;
use std::fmt::Write;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, Table, Width};
use reprieve_study::{Comparison, Verdict};

use super::{LEAST_LABEL, LONGEST_HEADER, NARROWEST, Options, clean, empty_table, letters, wrapped};
use crate::quantity::Spread;
use crate::table::{self, Line};

/// Labels are wrapped rather than values. A table whose labels would get less than this has its ranges on
/// lines of their own.
const LABEL_WIDTH: usize = 26;
const LEAST_PUBLISHED: Width = Width::Fixed(10);
/// "same direction," and "2.5 times the" under each other.
const LEAST_VERDICT: Width = Width::Fixed(16);
const LEGEND: &str = "Medians over repetitions (smallest–largest). Ratio with its 95 % bootstrap interval. p: two-sided \
                      permutation test; * below 0.05 after Holm's correction for the table.";

/// The table; `names` are the headings of its two columns of values.
pub fn render(text: &mut String, comparison: &Comparison, names: [&str; 2], options: &Options) {
    let lines = table::lines(comparison);
    let with_published = lines.iter().any(|line| line.verdict != Verdict::NoReference);
    let width = options.width.clamp(NARROWEST, usize::from(u16::MAX));
    let gap = if width_on_one_line(&lines, with_published) <= width { " " } else { "\n" };
    let mut out = empty_table(options);
    let name = |name: &str| -> Cow<'static, str> { clean(name).chars().take(LONGEST_HEADER).collect() };
    let mut header =
        vec!["metric".into(), name(names[0]), name(names[1]), "ratio [95 %]".into(), "p ".into()];
    if with_published {
        header.extend(["published".into(), "verdict".into()]);
    }
    out.set_header(header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for line in &lines {
        out.add_row(cells(line, gap, with_published));
    }
    set_columns(&mut out);
    let _ = writeln!(text, "{}", out.trim_fmt());
    wrapped(text, "", LEGEND, 0, options);
}

fn set_columns(out: &mut Table) {
    for (index, column) in out.column_iter_mut().enumerate() {
        if (1..=5).contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        // The style's invisible separator is a space, too.
        column.set_padding((if index == 0 { 0 } else { 1 }, 0));
        column.set_constraint(match index {
            0 => ColumnConstraint::LowerBoundary(LEAST_LABEL),
            1..=4 => ColumnConstraint::ContentWidth,
            5 => ColumnConstraint::LowerBoundary(LEAST_PUBLISHED),
            _ => ColumnConstraint::LowerBoundary(LEAST_VERDICT),
        });
    }
}

/// Width of the table when every value has its range beside it and nothing but labels is wrapped.
fn width_on_one_line(lines: &[Line], with_published: bool) -> usize {
    let widest = |text: &dyn Fn(&Line) -> usize| lines.iter().map(text).max().unwrap_or(0);
    let spread = |spread: &Option<Spread>| {
        spread.as_ref().map_or(1, |spread| letters(&spread.median) + 1 + letters(&spread.range))
    };
    let values = widest(&|line| spread(&line.baseline))
        + widest(&|line| spread(&line.treated))
        + widest(&|line| letters(&line.ratio) + 1 + letters(&line.interval))
        + "<0.001*".len();
    let published =
        widest(&|line| letters(&line.published)) + widest(&|line| letters(&line.verdict.to_string()));
    let padding = 2 * if with_published { 6 } else { 4 };
    LABEL_WIDTH + values + padding + if with_published { published } else { 0 }
}

fn cells(line: &Line, gap: &str, with_published: bool) -> Vec<Cell> {
    let spread = |spread: &Option<Spread>| match spread {
        None => Cell::new("-"),
        Some(spread) if spread.range.is_empty() => Cell::new(&spread.median),
        Some(spread) => Cell::new(format!("{}{gap}{}", spread.median, spread.range)),
    };
    let ratio = Cell::new(match line.ratio.as_str() {
        "" => "-".into(),
        ratio => format!("{ratio}{gap}{}", line.interval),
    });
    let mark = if line.significant { "*" } else { " " };
    let mut cells = vec![
        Cell::new(line.metric.label),
        spread(&line.baseline),
        spread(&line.treated),
        if line.significant { ratio.add_attribute(Attribute::Bold) } else { ratio },
        Cell::new(if line.p.is_empty() { "-".into() } else { format!("{}{mark}", line.p) }),
    ];
    if with_published {
        cells.push(Cell::new(clean(&line.published)));
        cells.push(verdict(line.verdict));
    }
    cells
}

fn verdict(verdict: Verdict) -> Cell {
    let cell = Cell::new(verdict.to_string());
    match verdict {
        agreeing if agreeing.agrees() => cell.fg(Color::Green),
        Verdict::OppositeDirection => cell.fg(Color::Red),
        Verdict::NoReference => cell,
        _ => cell.fg(Color::Yellow),
    }
}
