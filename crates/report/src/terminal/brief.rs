//! The short form of a study: what was found, and the rows that matter.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, CellAlignment, Color};
use reprieve_study::comparison::AGREES_WITHIN;
use reprieve_study::{Comparison, Study, Verdict, metric};

use super::{
    LONGEST_HEADER, Options, causes, clean, empty_table, finish, fitted, grids, heading, recovery, replays,
    side, sweeps, wrapped,
};
use crate::layout::Layout;
use crate::table::{self, Line};
use crate::{facts, headline};

/// With fewer conditions, and nothing published about them, one table has a column for each; else it has a row for each.
const MANY: usize = 4;
/// Metrics that such a table has room for.
const COLUMNS: usize = 4;
/// How to read a table of ratios.
const RATIOS: &str = "Ratios of medians to the baseline's, with their 95 % bootstrap intervals.";
/// What the marks beside published figures mean.
fn marks() -> String {
    format!(
        "(=) our effect and the published one are within {AGREES_WITHIN} times of each other, as logarithms of ratios; (+) \
         larger, (-) smaller, (!) the other way, (?) not clear here."
    )
}

/// A study in at most 25 lines a comparison.
pub fn render(text: &mut String, study: &Study, options: &Options) {
    heading(text, &format!("{}: {}", study.scenario.name, study.scenario.title), options);
    let how = if study.is_simulated() { "Simulated" } else { "Measured" };
    let runs = match study.scenario.run.repeat {
        1 => "one run".to_string(),
        runs => format!("{runs} runs"),
    };
    wrapped(text, "", &format!("{how}, {runs} of each condition: {}.", facts::short(study)), 2, options);
    for sentence in headline::of(study) {
        wrapped(text, "", &sentence, 2, options);
    }
    fitted(text, study, options);
    for warning in facts::warnings(study) {
        wrapped(text, "Note: ", &warning, 2, options);
    }
    match study.recovery() {
        Some(found) => recovery::render(text, &found, options),
        None => tables(text, study, options),
    }
    sweeps::render(text, study, options);
    replays::render(text, study, options);
    let source = &study.scenario.published.source;
    if !source.is_empty() {
        wrapped(text, "Published: ", source, 2, options);
    }
    if let Some(remark) = table::unmeasured(study) {
        wrapped(text, "", &remark, 0, options);
    }
    let _ = writeln!(text);
}

fn tables(text: &mut String, study: &Study, options: &Options) {
    match Layout::of(study) {
        Layout::SideBySide(side) => side::render(text, &side, options),
        Layout::Cases(found) => cases(text, study, &found, options),
        Layout::Grids => grids::render(text, study, options),
        Layout::Comparisons => comparisons(text, study, options),
    }
}

fn comparisons(text: &mut String, study: &Study, options: &Options) {
    let is_part = |comparison: &&Comparison| study.is_part(&comparison.condition);
    let wholes: Vec<&Comparison> =
        study.comparisons.iter().filter(|comparison| !is_part(comparison)).collect();
    let published = wholes.iter().any(|comparison| table::tally(comparison).is_some());
    match wholes.len() {
        0 => {}
        1 => table_of(text, study, wholes[0], options),
        _ if published => wholes.iter().for_each(|comparison| table_of(text, study, comparison, options)),
        2..MANY => table_of_few(text, study, &wholes, options),
        _ => {
            let lines: Vec<(&str, &Comparison)> =
                wholes.iter().map(|comparison| (comparison.condition.as_str(), *comparison)).collect();
            table_of_many(text, study, &lines, options);
        }
    }
    if study.comparisons.is_empty() {
        for (name, condition) in study.scenario.chosen() {
            wrapped(text, "", &format!("{name}: {}", condition.label), 2, options);
        }
        wrapped(text, "", "Nothing to compare: fewer than two conditions have runs.", 0, options);
    }
    causes::render(text, study, study.comparisons.iter().any(|comparison| is_part(&comparison)), options);
}

/// A line for each condition of each case, compared with that case's own baseline.
fn cases(text: &mut String, study: &Study, cases: &[(String, Study)], options: &Options) {
    let of_case = |(case, study): &'_ (String, Study)| -> Vec<(String, Comparison)> {
        let titled = |one: &Comparison| (format!("{case}, {}", one.condition), one.clone());
        study.comparisons.iter().map(titled).collect()
    };
    let found: Vec<(String, Comparison)> = cases.iter().flat_map(of_case).collect();
    let lines: Vec<(&str, &Comparison)> = found.iter().map(|(title, one)| (title.as_str(), one)).collect();
    table_of_many(text, study, &lines, options);
}

/// A line for each metric that matters or was published.
fn table_of(text: &mut String, study: &Study, comparison: &Comparison, options: &Options) {
    let wanted = table::rows(study);
    let place = |line: &Line| wanted.iter().position(|id| *id == line.metric.id).unwrap_or(wanted.len());
    let mut lines = table::lines(comparison);
    lines.retain(|line| wanted.contains(&line.metric.id) || line.verdict != Verdict::NoReference);
    lines.sort_by_key(place);
    let with_published = lines.iter().any(|line| line.verdict != Verdict::NoReference);
    let mut out = empty_table(options);
    let name = |name: &str| clean(name).chars().take(LONGEST_HEADER).collect::<String>();
    let mut header = vec![
        String::new(),
        name(&comparison.baseline),
        name(&comparison.condition),
        "ratio [95 %]".to_string(),
    ];
    header.extend(with_published.then(|| "published".to_string()));
    out.set_header(header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for line in &lines {
        let median = |spread: &Option<crate::quantity::Spread>| {
            Cell::new(spread.as_ref().map_or("-", |spread| spread.median.as_str()))
        };
        let mut cells = vec![
            Cell::new(line.metric.label),
            median(&line.baseline),
            median(&line.treated),
            Cell::new(ratio(line)),
        ];
        if with_published {
            cells.push(published_ratio(line, options));
        }
        out.add_row(cells);
    }
    for (index, column) in out.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 1 }, 0));
        if (1..=2).contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(text, "\n{}", out.trim_fmt());
    if with_published {
        wrapped(text, "", &marks(), 0, options);
    }
}

fn published_ratio(line: &Line, options: &Options) -> Cell {
    let (mark, colour) = match line.verdict {
        Verdict::NoReference => return Cell::new(""),
        agreeing if agreeing.agrees() => ('=', Some(Color::Green)),
        Verdict::SameDirection { times } => (if times > 1.0 { '+' } else { '-' }, Some(Color::Yellow)),
        Verdict::OppositeDirection => ('!', Some(Color::Red)),
        Verdict::NoClearEffect | Verdict::TooFewRuns { .. } | Verdict::NotMeasured => ('?', None),
    };
    let cell = Cell::new(format!("x{} ({mark})", line.published_ratio));
    match colour.filter(|_| options.colour) {
        Some(colour) => cell.fg(colour),
        None => cell,
    }
}

/// A line for each metric that matters: the baseline's median, and the ratio of each condition.
fn table_of_few(text: &mut String, study: &Study, comparisons: &[&Comparison], options: &Options) {
    text.push('\n');
    let found: Vec<Vec<Line>> = comparisons.iter().map(|comparison| table::lines(comparison)).collect();
    let line_of = |lines: &'_ [Line], id: &str| lines.iter().position(|line| line.metric.id == id);
    let mut out = empty_table(options);
    let names = comparisons.iter().map(|comparison| comparison.condition.as_str());
    let header = ["", study.scenario.baseline()].into_iter().chain(names);
    out.set_header(header.map(|name| Cell::new(clean(name)).add_attribute(Attribute::Bold)));
    for id in table::rows(study) {
        let of_each: Vec<Option<&Line>> =
            found.iter().map(|lines| line_of(lines, id).map(|at| &lines[at])).collect();
        let Some(any) = of_each.iter().flatten().next() else { continue };
        let baseline = any.baseline.as_ref().map_or("-".to_string(), |spread| spread.median.clone());
        // What only some conditions have, as boosts, is shown as it is.
        let treated =
            |line: &Line| line.treated.as_ref().map_or("-".to_string(), |spread| spread.median.clone());
        let cell = |line: &Line| if line.baseline.is_none() { treated(line) } else { ratio(line) };
        let ratios = of_each.iter().map(|line| Cell::new(line.map_or("-".to_string(), cell)));
        out.add_row([Cell::new(any.metric.label), Cell::new(baseline)].into_iter().chain(ratios));
    }
    finish(text, out, 1);
    wrapped(text, "", RATIOS, 0, options);
}

/// A ratio with its interval.
fn ratio(line: &Line) -> String {
    match line.ratio.as_str() {
        "" => "-".to_string(),
        ratio => format!("x{ratio} {}", line.interval),
    }
}

/// A line for each comparison, by its title: ratios to the baseline.
fn table_of_many(text: &mut String, study: &Study, comparisons: &[(&str, &Comparison)], options: &Options) {
    let measured = |id: &&str| {
        comparisons.iter().any(|(_, comparison)| comparison.row(id).is_some_and(|row| row.ratio.is_some()))
    };
    let columns: Vec<&str> = table::rows(study).into_iter().filter(measured).take(COLUMNS).collect();
    let mut out = empty_table(options);
    let label = |id: &str| metric::find(id).map_or(id.to_string(), |metric| metric.label.to_string());
    let header = std::iter::once(format!("over {}", clean(study.scenario.baseline())))
        .chain(columns.iter().map(|id| label(id)));
    out.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for (title, comparison) in comparisons {
        let lines = table::lines(comparison);
        let cell = |id: &&str| {
            let line = lines.iter().find(|line| line.metric.id == *id);
            Cell::new(line.map_or("-".to_string(), ratio))
        };
        let first = Cell::new(clean(title));
        out.add_row(std::iter::once(first).chain(columns.iter().map(cell)));
    }
    let _ = writeln!(text, "\n{}", out.trim_fmt());
    wrapped(text, "", RATIOS, 0, options);
}
