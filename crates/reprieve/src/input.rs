//! Reading what the user hands in: text files of bounded size.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

/// The text in `path`. `what` it should be is said when it is larger than `limit_bytes`. The bytes are
/// counted as they come: a pipe or a device has no size beforehand.
pub fn read_text(path: &Path, limit_bytes: u64, what: &str) -> Result<String, Failure> {
    let bad = |problem: String| Failure::Usage(format!("{}: {problem}", path.display()));
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(limit_bytes + 1).read_to_string(&mut text))
        .map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > limit_bytes {
        return Err(bad(format!("more than {} MiB are too many for a {what}", limit_bytes >> 20)));
    }
    Ok(text)
}
