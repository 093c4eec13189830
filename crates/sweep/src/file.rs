//! Files that appear whole or not at all. Until then they have names that begin with `.unfinished-`; those that a killed process left are
//! removed later.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use crate::{Result, SweepError};

const PREFIX: &str = ".unfinished-";
/// An unfinished file of this age is nobody's any more.
const STALE: Duration = Duration::from_secs(86_400);

/// Opens a file to be read. Another kind, such as a pipe, which could keep its reader for ever, is refused.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file")),
    }
}

/// A file in this folder without its name yet. Who may read it, the umask says.
///
/// # Errors
/// It cannot be made.
pub fn unfinished(folder: &Path) -> Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).permissions(Permissions::from_mode(0o666));
    builder.tempfile_in(folder).map_err(SweepError::io(folder))
}

/// Gives a file its name, once its bytes are on the disk. It replaces what has the name, and follows no link.
///
/// # Errors
/// It cannot be written.
pub fn finish(file: NamedTempFile, path: &Path) -> Result {
    file.as_file().sync_all().map_err(SweepError::io(path))?;
    file.persist(path).map(drop).map_err(|failed| SweepError::Io { path: path.into(), error: failed.error })
}

/// Writes a whole file.
///
/// # Errors
/// It cannot be written.
pub fn put(path: &Path, bytes: &[u8]) -> Result {
    let mut file = unfinished(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(bytes).map_err(SweepError::io(path))?;
    finish(file, path)
}

/// Removes what processes that were killed left in this folder a day ago or earlier.
pub fn clean(folder: &Path) {
    let is_stale = |entry: &fs::DirEntry| -> io::Result<bool> {
        let age = SystemTime::now().duration_since(entry.metadata()?.modified()?).unwrap_or_default();
        Ok(entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) && age > STALE)
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_stale(&entry).unwrap_or(false) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
