//! Tables for a terminal. Readable from 100 columns on, with or without colour: colour repeats what the text
//! says. Text from a record is shown as [`reprieve_study::shown`] has it, so that no scenario file or guest can send an
//! escape sequence to the reader's terminal.

mod brief;
mod conformance;
mod latencies;
mod more;
mod replays;
mod side;

use std::borrow::Cow;
use std::fmt::Write;

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, Table,
    TableStyle, Width,
};
use reprieve_study::{Comparison, Record, Study, Verdict, shown};

use crate::quantity::Spread;
use crate::table::{self, Line};
use crate::{facts, headline, side_by_side};

/// Rules above and below the header and under the table; rows of two lines are told apart by their labels.
const STYLE: TableStyle = TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);
const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
/// Labels are wrapped rather than values. A table whose labels would get less than this has its ranges on
/// lines of their own.
const LABEL_WIDTH: usize = 26;
/// Least widths, padding included, at which text that is wrapped can still be read.
const LEAST_LABEL: Width = Width::Fixed(17);
const LEAST_PUBLISHED: Width = Width::Fixed(10);
/// "same direction," and "2.5 times the" under each other.
const LEAST_VERDICT: Width = Width::Fixed(16);
/// Names of conditions and records are cut to this in a table's header.
const LONGEST_HEADER: usize = 20;
/// Narrower terminals get lines of this width.
const NARROWEST: usize = 80;
/// Names of facts are padded up to here.
const LONGEST_NAME: usize = 20;
const LEGEND: &str = "Medians over repetitions (smallest–largest). Ratio with its 95 % bootstrap interval. p: two-sided \
                      permutation test; * below 0.05 after Holm's correction for the table.";

/// How to render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to emit colours.
    pub colour: bool,
    /// Columns of the terminal.
    pub width: usize,
    /// All metrics, with their ranges and p-values, and how they were measured.
    pub full: bool,
}

/// What a record has found; all of it if that is wanted.
pub fn render(record: &Record, options: &Options) -> String {
    let mut text = String::new();
    for study in &record.studies {
        match options.full {
            true => render_study(&mut text, study, options),
            false => brief::render(&mut text, study, options),
        }
    }
    text
}

/// A sentence for each study; nothing for one study, whose sentences have just been read.
pub fn render_short(record: &Record, options: &Options) -> String {
    let short: Vec<String> = record.studies.iter().filter_map(headline::short).collect();
    let mut text = String::new();
    if short.len() > 1 {
        heading(&mut text, "In short", options);
        short.iter().for_each(|sentence| wrapped(&mut text, "", sentence, 2, options));
        let _ = writeln!(text);
    }
    text
}

fn render_study(text: &mut String, study: &Study, options: &Options) {
    heading(text, &format!("{}: {}", study.scenario.name, study.scenario.title), options);
    for sentence in headline::of(study) {
        wrapped(text, "", &sentence, 2, options);
    }
    let facts = facts::of(study);
    let pad = facts.iter().map(|fact| letters(&clean(&fact.name))).max().unwrap_or(0).min(LONGEST_NAME);
    for fact in &facts {
        // A name that is longer has its spaces, too.
        wrapped(text, &format!("{:<pad$}  ", clean(&fact.name)), &fact.value, pad + 2, options);
    }
    match side_by_side::of(study) {
        Some(side) => side::render(text, &side, options),
        None if !study.scenario.cases.is_empty() => more::grids(text, study, options),
        None => render_comparisons(text, study, options),
    }
    more::sweeps(text, study, options);
    replays::render(text, study, options);
    render_published(text, study, options);
}

/// A table for each condition, and throughput lost by cause.
fn render_comparisons(text: &mut String, study: &Study, options: &Options) {
    let is_part = |comparison: &&Comparison| study.is_part(&comparison.condition);
    for comparison in study.comparisons.iter().filter(|comparison| !is_part(comparison)) {
        let _ = writeln!(text);
        heading(text, &format!("{} against {}", comparison.condition, comparison.baseline), options);
        let names = [comparison.baseline.as_str(), comparison.condition.as_str()];
        render_table(text, comparison, names, options);
        for remark in [table::tally(comparison), table::smallest_p(comparison)].iter().flatten() {
            wrapped(text, "", remark, 0, options);
        }
    }
    if study.comparisons.is_empty() {
        wrapped(text, "", "Nothing to compare: fewer than two conditions have runs.", 0, options);
    }
    more::causes(text, study, study.comparisons.iter().any(|comparison| is_part(&comparison)), options);
}

fn render_published(text: &mut String, study: &Study, options: &Options) {
    let published = &study.scenario.published;
    if let Some(remark) = table::unmeasured(study) {
        wrapped(text, "", &remark, 0, options);
    }
    if !published.source.is_empty() {
        let _ = writeln!(text);
        wrapped(text, "Published: ", &published.source, 2, options);
    }
    for statement in &published.statements {
        wrapped(text, "  - ", statement, 4, options);
    }
    if !published.fitted.is_empty() {
        let chosen = published.fitted.join("; ");
        wrapped(text, "Fitted: ", &format!("chosen with these figures in view: {chosen}."), 2, options);
    }
    let _ = writeln!(text);
}

/// The same conditions in two records, `b` against `a`; `names` is what to call them.
pub fn render_compare(a: &Record, b: &Record, names: (&str, &str), options: &Options) -> String {
    let mut text = String::new();
    for across in table::across(a, b) {
        heading(&mut text, &format!("{}: {} against {}", across.scenario, names.1, names.0), options);
        for difference in across.differences.iter().filter(|_| options.full) {
            wrapped(&mut text, "Not alike. ", difference, 4, options);
        }
        if let Some(conformance) = &across.conformance {
            conformance::render(&mut text, conformance, options);
            if options.full {
                conformance::off_times(&mut text, &across.off_times, options);
            }
        }
        if let Some(latencies) = &across.latencies {
            latencies::render(&mut text, latencies, options);
        }
        for comparison in &across.conditions {
            let _ = writeln!(text);
            heading(&mut text, &format!("condition {}", comparison.condition), options);
            render_table(&mut text, comparison, [names.0, names.1], options);
            if let Some(remark) = table::smallest_p(comparison) {
                wrapped(&mut text, "", &remark, 0, options);
            }
        }
        let _ = writeln!(text);
    }
    if text.is_empty() {
        text.push_str("The two records have no scenario in common.\n");
    }
    text
}

fn render_table(text: &mut String, comparison: &Comparison, names: [&str; 2], options: &Options) {
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

fn empty_table(options: &Options) -> Table {
    let mut out = Table::new();
    let width = options.width.clamp(NARROWEST, usize::from(u16::MAX));
    out.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
    if options.colour {
        out.enforce_styling();
    } else {
        out.force_no_tty();
    }
    out
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

fn letters(text: &str) -> usize {
    text.chars().count()
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

fn heading(text: &mut String, line: &str, options: &Options) {
    let (bold, plain) = if options.colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(text, "{bold}{}{plain}", clean(line));
}

fn wrapped(text: &mut String, first: &str, line: &str, indent: usize, options: &Options) {
    let indent = " ".repeat(indent);
    let options =
        textwrap::Options::new(options.width.max(NARROWEST)).initial_indent(first).subsequent_indent(&indent);
    let _ = writeln!(text, "{}", textwrap::fill(&clean(line), options));
}

/// Fit for a cell or for text that is wrapped: what separates words there is a space.
fn clean(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\t', '\r']) {
        true => shown::line(&text.replace(['\n', '\t', '\r'], " ")).into_owned().into(),
        false => shown::line(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{9b}d"), r"a\x1b[2Jb c\x9bd");
        assert_eq!(clean("a\u{202e}b"), r"a\u{202e}b");
        assert_eq!(clean("plain – text"), "plain – text");
    }
}
