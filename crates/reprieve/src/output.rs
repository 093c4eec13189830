//! Writing results: to stdout, and to files that appear whole or not at all.
//!
//! Invariant: what reaches a terminal through here obeys nobody but this program. Foreign text is escaped (see
//! [`reprieve_study::shown`]), and what follows its line breaks on stderr is indented, so that it begins no line of its own.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use console::Term;
use reprieve_report::terminal;
use reprieve_study::shown;
use rustix::fs::OFlags;

use crate::failure::Failure;

/// Columns where stdout is no terminal.
const COLUMNS: usize = 120;
/// What the second and later lines of a message begin with.
const INDENT: &str = "    ";

/// How stdout wants tables.
pub fn options(full: bool) -> terminal::Options {
    let term = Term::stdout();
    let width = term.size_checked().map_or(COLUMNS, |(_, columns)| columns.into());
    terminal::Options { colour: term.is_term() && std::env::var_os("NO_COLOR").is_none(), width, full }
}

/// Prints lines to stdout. A reader that has seen enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    print_made(&shown::lines(text))
}

/// Prints what is all of this program's making, or escaped where it is not: tables in colour, scripts.
pub fn print_made(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::output(error)),
        _ => Ok(()),
    }
}

/// Prints help, or the version, in colour where that is wanted.
pub fn print_help(help: &StyledStr) -> Result<(), Failure> {
    let text = if options(false).colour { help.ansi().to_string() } else { help.to_string() };
    print_made(&text)
}

/// Says something on stderr, if that can be: nothing depends on it.
pub fn say(text: &str) {
    say_lines(&message(text));
}

/// Says lines of this program's making on stderr.
pub fn say_lines(text: &str) {
    // In one piece: others write to the same terminal.
    let _ = std::io::stderr().lock().write_all(format!("{}\n", shown::lines(text)).as_bytes());
}

/// A message with its further lines indented: whoever wrote them, they are part of it.
fn message(text: &str) -> String {
    let mut lines = text.trim_end_matches('\n').split('\n');
    let first = lines.next().unwrap_or_default();
    let rest: Vec<&str> = lines.collect();
    let indent = if rest.iter().all(|line| line.starts_with(INDENT)) { "" } else { INDENT };
    rest.iter().fold(first.to_string(), |message, line| format!("{message}\n{indent}{line}"))
}

/// The failure that counts of what was tried, all of it: the first. The others are said.
pub fn first_failure(tried: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let mut failures = tried.into_iter().filter_map(Result::err);
    let first = failures.next();
    failures.for_each(|failure| say(&format!("reprieve: {failure}")));
    first.map_or(Ok(()), Err)
}

/// A file to be written after hours of work: that it can be written is made sure of before. Until then it
/// has no name anywhere, so that whatever ends us leaves nothing behind.
pub struct Promised {
    path: PathBuf,
    target: Target,
}

enum Target {
    /// A file, new or to be replaced, in this folder.
    File(PathBuf),
    /// A pipe or a device: written to, never replaced.
    Stream(File),
}

impl Promised {
    /// Makes sure that the file can be written.
    pub fn open(path: &Path) -> Result<Promised, Failure> {
        let refused =
            |error: std::io::Error| Failure::Usage(format!("cannot write {}: {error}", path.display()));
        let there = std::fs::metadata(path).ok();
        if there.as_ref().is_some_and(|there| !there.is_dir() && !there.is_file()) {
            return Ok(Promised {
                path: path.into(),
                target: Target::Stream(stream(path).map_err(refused)?),
            });
        }
        if there.is_some_and(|there| there.is_dir()) {
            return Err(refused(ErrorKind::IsADirectory.into()));
        }
        // A link stays a link: what it leads to is replaced.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
            _ => PathBuf::from("."),
        };
        tempfile::tempfile_in(&folder).map_err(refused)?;
        Ok(Promised { path, target: Target::File(folder) })
    }

    /// Writes the finished file, and puts it in its place.
    pub fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.path;
        let done = match self.target {
            Target::Stream(mut stream) => stream.write_all(bytes),
            Target::File(folder) => replace(&folder, &path, bytes),
        };
        done.map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
    }
}

/// Opens a pipe or a device, without waiting for a FIFO's reader, who may never come.
pub fn stream(path: &Path) -> std::io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().write(true).custom_flags(nonblocking).open(path);
    let stream = opened.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::NXIO) => {
            std::io::Error::other("nobody reads from it; start its reader first")
        }
        _ => error,
    })?;
    // A slow reader is waited for.
    let flags = rustix::fs::fcntl_getfl(&stream)?;
    rustix::fs::fcntl_setfl(&stream, flags - OFlags::NONBLOCK)?;
    Ok(stream)
}

fn replace(folder: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(".reprieve-").permissions(permissions()).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// What a file that is simply created would have, before the user's umask.
fn permissions() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_message_but_the_first_begins_at_the_margin() {
        assert_eq!(message("one"), "one");
        assert_eq!(message("a/b\nwarning: root: gone\n\n"), "a/b\n    warning: root: gone");
        assert_eq!(message("x:\n  |\n1 | y\n"), "x:\n      |\n    1 | y");
        assert_eq!(message("console:\n    one\n      two"), "console:\n    one\n      two");
    }
}
