//! Tables for a terminal. Readable from 100 columns on, with or without colour: colour repeats what the text
//! says. Text from a record is shown as [`reprieve_study::shown`] has it, so that no scenario file or guest can send an
//! escape sequence to the reader's terminal.

mod brief;
mod causes;
mod comparison;
mod conformance;
mod grids;
mod latencies;
mod provision;
mod recovery;
mod replays;
mod side;
mod sweeps;

pub use provision::render_provision;

use std::borrow::Cow;
use std::fmt::Write;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width};
use reprieve_study::{Comparison, Record, Study, shown};

use crate::layout::Layout;
use crate::{facts, headline, table};

/// Rules above and below the header and under the table; rows of two lines are told apart by their labels.
const STYLE: TableStyle = TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);
const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
/// Least widths, padding included, at which text that is wrapped can still be read.
const LEAST_LABEL: Width = Width::Fixed(17);
/// Names of conditions and records are cut to this in a table's header.
const LONGEST_HEADER: usize = 20;
/// Narrower terminals get lines of this width.
const NARROWEST: usize = 80;
/// Names of facts are padded up to here.
const LONGEST_NAME: usize = 20;

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
        let simulated = record.studies.iter().all(Study::is_simulated);
        heading(&mut text, if simulated { "In short (all simulated)" } else { "In short" }, options);
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
    if let Some(found) = study.recovery() {
        recovery::render(text, &found, options);
    }
    match Layout::of(study) {
        Layout::SideBySide(side) => side::render(text, &side, options),
        Layout::Grids => grids::render(text, study, options),
        Layout::Cases(cases) => {
            for (name, study) in &cases {
                let _ = writeln!(text);
                heading(text, &format!("Case {name}"), options);
                render_comparisons(text, study, options);
            }
        }
        Layout::Comparisons => render_comparisons(text, study, options),
    }
    sweeps::render(text, study, options);
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
        comparison::render(text, comparison, names, options);
        for remark in [table::tally(comparison), table::smallest_p(comparison)].iter().flatten() {
            wrapped(text, "", remark, 0, options);
        }
    }
    if study.comparisons.is_empty() {
        wrapped(text, "", "Nothing to compare: fewer than two conditions have runs.", 0, options);
    }
    causes::render(text, study, study.comparisons.iter().any(|comparison| is_part(&comparison)), options);
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
    fitted(text, study, options);
    let _ = writeln!(text);
}

/// What was chosen with the published figures in view.
fn fitted(text: &mut String, study: &Study, options: &Options) {
    let fitted = &study.scenario.published.fitted;
    if !fitted.is_empty() {
        let chosen = fitted.join("; ");
        wrapped(
            text,
            "Fitted: ",
            &format!("chosen with the published figures in view: {chosen}."),
            2,
            options,
        );
    }
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
            comparison::render(&mut text, comparison, [names.0, names.1], options);
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

/// Ends a table: labels to the left, numbers to the right.
fn finish(text: &mut String, out: Table, labels: usize) {
    finish_with(text, out, labels, ColumnConstraint::ContentWidth);
}

/// The same; labels are as wide as that says.
fn finish_with(text: &mut String, mut out: Table, labels: usize, width: ColumnConstraint) {
    for (index, column) in out.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 1 }, 0));
        column.set_constraint(if index < labels { width } else { ColumnConstraint::ContentWidth });
        if index >= labels {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(text, "{}", out.trim_fmt());
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

fn heading(text: &mut String, line: &str, options: &Options) {
    let (bold, plain) = if options.colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(text, "{bold}{}{plain}", clean(line));
}

fn wrapped(text: &mut String, first: &str, line: &str, indent: usize, options: &Options) {
    let indent = " ".repeat(indent);
    let options =
        textwrap::Options::new(options.width.max(NARROWEST)).initial_indent(first).subsequent_indent(&indent);
    // A number stays on the line of its per cent sign.
    let unbroken = clean(line).replace(" %", "\u{a0}%");
    let _ = writeln!(text, "{}", textwrap::fill(&unbroken, options).replace('\u{a0}', " "));
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
