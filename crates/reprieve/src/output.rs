//! Writing results: to stdout, and to files that appear whole or not at all.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use console::Term;
use reprieve_report::terminal;
use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Columns where stdout is no terminal.
const COLUMNS: usize = 120;

/// How stdout wants tables.
pub fn options() -> terminal::Options {
    let term = Term::stdout();
    let width = term.size_checked().map_or(COLUMNS, |(_, columns)| columns.into());
    terminal::Options { colour: term.is_term() && std::env::var_os("NO_COLOR").is_none(), width }
}

/// Prints to stdout. A reader that has seen enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::output(error)),
        _ => Ok(()),
    }
}

/// A file to be written after hours of work: that it can be written is made sure of before.
pub struct Promised {
    path: PathBuf,
    file: NamedTempFile,
}

impl Promised {
    /// Opens a temporary file beside the wanted one.
    pub fn open(path: &Path) -> Result<Promised, Failure> {
        let refused =
            |error: std::io::Error| Failure::Usage(format!("cannot write {}: {error}", path.display()));
        if path.is_dir() {
            return Err(refused(ErrorKind::IsADirectory.into()));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        let file =
            builder.prefix(".reprieve-").permissions(permissions()).tempfile_in(folder).map_err(refused)?;
        Ok(Promised { path: path.to_path_buf(), file })
    }

    /// Puts the finished file in its place.
    pub fn write(mut self, bytes: &[u8]) -> Result<(), Failure> {
        let refused =
            |error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", self.path.display()));
        self.file.write_all(bytes).map_err(refused)?;
        self.file.persist(&self.path).map(drop).map_err(|error| refused(error.error))
    }
}

/// What a file that is simply created would have, before the user's umask.
fn permissions() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}
