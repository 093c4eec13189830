//! `reprieve compare`: two records against each other.

use reprieve_report::{table::across, terminal};

use crate::cli::CompareArguments;
use crate::failure::Failure;
use crate::output;
use crate::record_file;

/// Runs the verb.
pub fn compare(arguments: &CompareArguments) -> Result<(), Failure> {
    let (a, b) = (record_file::read(&arguments.a)?, record_file::read(&arguments.b)?);
    let names = (arguments.a.display().to_string(), arguments.b.display().to_string());
    let found = across(&a, &b);
    let unlike: Vec<&str> =
        found.iter().flat_map(|across| across.unlike.iter().map(String::as_str)).collect();
    if !unlike.is_empty() && !arguments.force {
        let lines = unlike.join("\n    ");
        return Err(Failure::Usage(format!(
            "conditions of one name are two experiments (--force compares them all the same):\n    {lines}"
        )));
    }
    let text = terminal::render_compare(&a, &b, (&names.0, &names.1), &output::options(arguments.full));
    output::print_made(&text)?;
    let wrong: usize =
        found.iter().flat_map(|across| &across.conformance).map(|found| found.wrong().count()).sum();
    match wrong {
        0 => Ok(()),
        wrong => Err(Failure::Failed(format!(
            "the simulator has the direction of {wrong} effect(s) wrong that are clear on both sides"
        ))),
    }
}
