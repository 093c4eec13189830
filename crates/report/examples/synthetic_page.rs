//! Renders a synthetic record into a directory: the page, each figure, and the terminal's table on stdout.
//! For looking at the layout; the numbers are made up.
//!
//! `cargo run -p reprieve-report --example synthetic_page -- DIRECTORY`

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use reprieve_report::{figure, html, terminal};

#[path = "../tests/support/mod.rs"]
mod support;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(env::args().nth(1).ok_or("say into which directory")?);
    fs::create_dir_all(&directory)?;
    let mut record = support::record();
    record.studies.extend(support::simulated::record().studies);
    fs::write(directory.join("page.html"), html::render(&record))?;
    for figure in record.studies.iter().flat_map(figure::all) {
        fs::write(directory.join(format!("{}.svg", figure.slug)), figure.standalone())?;
    }
    let options = terminal::Options {
        full: true,
        colour: false,
        width: env::args().nth(2).map_or(Ok(110), |width| width.parse())?,
    };
    print!("{}", terminal::render(&record, &options));
    let other = support::slower(1.5);
    print!("{}", terminal::render_compare(&record, &other, ("before", "after"), &options));
    Ok(())
}
