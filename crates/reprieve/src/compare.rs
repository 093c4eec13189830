//! `reprieve compare`: two records against each other.

use std::path::Path;

use reprieve_report::terminal;
use reprieve_study::Record;

use crate::cli::CompareArguments;
use crate::failure::Failure;
use crate::output;

/// Largest record.
const FILE_BYTES: u64 = 256 << 20;

/// Runs the verb.
pub fn compare(arguments: &CompareArguments) -> Result<(), Failure> {
    let (a, b) = (read(&arguments.a)?, read(&arguments.b)?);
    let names = (arguments.a.display().to_string(), arguments.b.display().to_string());
    let text = terminal::render_compare(&a, &b, (&names.0, &names.1), &output::options());
    output::print(&text)
}

fn read(path: &Path) -> Result<Record, Failure> {
    let bad = |problem: String| Failure::Usage(format!("{}: {problem}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if size > FILE_BYTES {
        return Err(bad(format!("{size} bytes are too many for a record")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    Record::from_json(&text).map_err(|error| bad(error.to_string()))
}
