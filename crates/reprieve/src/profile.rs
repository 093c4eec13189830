//! `reprieve profile`: what is known of a VM that nobody disturbs, for `plan`.

use std::path::PathBuf;

use reprieve_study::provision::recorded;

use crate::cli::ProfileArguments;
use crate::failure::Failure;
use crate::output::{self, Promised};
use crate::record_file;

/// Runs the verb.
pub fn profile(arguments: &ProfileArguments) -> Result<(), Failure> {
    let study = record_file::study(&arguments.from, arguments.scenario.as_deref())?;
    let made = recorded::profile(&study, arguments.case.as_deref(), arguments.condition.as_deref());
    let profile = made.map_err(|error| Failure::Usage(format!("{}: {error}", arguments.from.display())))?;
    profile.missing.iter().for_each(|missing| output::say(&format!("reprieve: warning: {missing}")));
    let write = |path: &PathBuf| Promised::open(path)?.write(profile.to_json().as_bytes());
    arguments.output.as_ref().map_or_else(|| output::print(&profile.to_json()), write)
}
