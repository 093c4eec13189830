//! `reprieve report`: a recorded run, shown again.

use std::path::{Path, PathBuf};

use reprieve_report::{figure, html, terminal};
use reprieve_study::Study;

use crate::cli::ReportArguments;
use crate::failure::Failure;
use crate::output::{self, Promised};
use crate::record_file;

/// Runs the verb.
pub fn report(arguments: &ReportArguments) -> Result<(), Failure> {
    let record = record_file::read(&arguments.record)?;
    let page = |path: &PathBuf| Promised::open(path)?.write(html::render(&record).as_bytes());
    let figures = |folder: &PathBuf| record.studies.iter().try_for_each(|study| write_figures(study, folder));
    output::first_failure([
        arguments.html.as_ref().map_or(Ok(()), page),
        arguments.figures.as_ref().map_or(Ok(()), figures),
        output::print_made(&terminal::render(&record, &output::options(arguments.full))),
    ])
}

/// Each figure of a study as an SVG file; its slug begins with the scenario's name.
fn write_figures(study: &Study, folder: &Path) -> Result<(), Failure> {
    for figure in figure::all(study) {
        let path = folder.join(format!("{}.svg", figure.slug));
        Promised::open(&path)?.write(figure.standalone().as_bytes())?;
    }
    Ok(())
}
