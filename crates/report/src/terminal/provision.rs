//! An estimate of memory: the answer, a line for each ratio and remedy, and what is weak about it.

use std::fmt::Write;

use comfy_table::{Attribute, Cell};
use reprieve_study::provision::{Against, Provision};
use reprieve_study::units::size;

use super::{Options, clean, empty_table, finish, wrapped};
use crate::provision::{self, AGAINST_HEADER, HEADER, READING};

/// The answer; beside measured runs, if there are some.
pub fn render_provision(answer: &Provision, options: &Options) -> String {
    let mut text = String::new();
    for sentence in &answer.headline {
        wrapped(&mut text, "", sentence, 2, options);
    }
    let _ = writeln!(text);
    if let Some(found) = &answer.against {
        measured(&mut text, found, options);
    }
    let mut out = empty_table(options);
    out.set_header(HEADER.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for row in &answer.rows {
        out.add_row(
            provision::cells(row)
                .map(|(above, below)| Cell::new(format!("{}\n{}", clean(&above), clean(&below)))),
        );
    }
    finish(&mut text, out, 2);
    wrapped(&mut text, "", READING, 0, options);
    for input in &answer.inputs {
        let line = format!(
            "{} for {} at {}",
            size(input.after_bytes),
            size(input.before_bytes),
            input.of.replace('-', " ")
        );
        wrapped(
            &mut text,
            "  ",
            &format!("with {}: {line} (median of extra memory)", input.what),
            4,
            options,
        );
    }
    for flag in &answer.flags {
        wrapped(&mut text, "! ", flag, 2, options);
    }
    let runs = format!(
        "{} windows of each condition, seed {}, result {}",
        answer.undisturbed.runs, answer.seed, answer.result_hash
    );
    wrapped(&mut text, "", &format!("Simulated. {}: {runs}", answer.source), 2, options);
    text
}

fn measured(text: &mut String, found: &Against, options: &Options) {
    let mut out = empty_table(options);
    out.set_header(AGAINST_HEADER.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for checked in &found.checked {
        out.add_row(provision::against_cells(checked).map(|cell| Cell::new(clean(&cell))));
    }
    finish(text, out, 1);
    wrapped(text, "", &provision::against_reading(found), 0, options);
    let _ = writeln!(text);
}
