//! Reading recorded runs.

use std::path::Path;

use reprieve_study::{Record, Study};

use crate::failure::Failure;
use crate::input;

/// Largest record.
const FILE_BYTES: u64 = 256 << 20;

/// Reads a record that `run --json` wrote.
pub fn read(path: &Path) -> Result<Record, Failure> {
    let text = input::read_text(path, FILE_BYTES, "record")?;
    Record::from_json(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Reads one study of a record: the one of that scenario, or the only one.
pub fn study(path: &Path, scenario: Option<&str>) -> Result<Study, Failure> {
    let mut studies = read(path)?.studies;
    let names: Vec<String> = studies.iter().map(|study| study.scenario.name.clone()).collect();
    studies.retain(|study| scenario.is_none_or(|name| study.scenario.name == name));
    match (studies.len(), studies.pop()) {
        (1, Some(study)) => Ok(study),
        (0, _) => Err(Failure::Usage(format!(
            "{}: has no such scenario; it has {}",
            path.display(),
            names.join(", ")
        ))),
        _ => Err(Failure::Usage(format!("{}: has several scenarios: {}", path.display(), names.join(", ")))),
    }
}
