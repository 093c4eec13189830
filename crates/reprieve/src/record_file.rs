//! Reading recorded runs.

use std::path::Path;

use reprieve_study::Record;

use crate::failure::Failure;

/// Largest record.
const FILE_BYTES: u64 = 256 << 20;

/// Reads a record that `run --json` wrote.
pub fn read(path: &Path) -> Result<Record, Failure> {
    let bad = |problem: String| Failure::Usage(format!("{}: {problem}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if size > FILE_BYTES {
        return Err(bad(format!("{size} bytes are too many for a record")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    Record::from_json(&text).map_err(|error| bad(error.to_string()))
}
