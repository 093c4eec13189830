//! Reading recorded runs.

use std::path::Path;

use reprieve_study::Record;

use crate::failure::Failure;
use crate::input;

/// Largest record.
const FILE_BYTES: u64 = 256 << 20;

/// Reads a record that `run --json` wrote.
pub fn read(path: &Path) -> Result<Record, Failure> {
    let text = input::read_text(path, FILE_BYTES, "record")?;
    Record::from_json(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}
