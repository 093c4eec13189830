//! The error type of this crate: what was tried, on which path, why it failed, and a way out.
//!
//! Invariant: text that came from the machine is cut to [`QUOTE_LIMIT_BYTES`] before it is quoted.

use std::io;
use std::path::{Path, PathBuf};

/// The longest quotation of text from the machine, in bytes.
pub const QUOTE_LIMIT_BYTES: usize = 80;

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a probe or an actuator. `action` is what was tried, as a verb: "write", "set the affinity of"; `path` is the
/// file, directory or thread it was tried on; `source` is the kernel's answer; `way_out` is what the user can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text above says what the fields are")]
pub enum Error {
    /// The kernel refused: the caller lacks rights (EPERM, EACCES), or the mount is read-only (EROFS).
    #[error("not permitted to {action} {}: {source}; {way_out}", path.display())]
    NotPermitted { action: &'static str, path: PathBuf, source: io::Error, way_out: &'static str },
    /// The process or thread has ended.
    #[error("cannot {action} {}: the process or thread has ended; look its id up again", path.display())]
    Gone { action: &'static str, path: PathBuf },
    /// The kernel refused for any other reason.
    #[error("cannot {action} {}: {source}; {way_out}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error, way_out: &'static str },
    /// A kernel file does not have the documented format.
    #[error("{}: expected {expected}, found {found:?}; this kernel uses an unknown format, please report it", path.display())]
    Malformed { path: PathBuf, expected: &'static str, found: String },
    /// The machine lacks a feature.
    #[error("this machine has no {what} (looked at {}); {way_out}", path.display())]
    Missing { what: &'static str, path: PathBuf, way_out: &'static str },
    /// The caller passed a value outside its limits; `expected` says how to keep them.
    #[error("{what} {value:?} is not acceptable: {expected}")]
    Invalid { what: &'static str, value: String, expected: &'static str },
}

impl Error {
    /// Makes an I/O error on `path` an [`Error::NotPermitted`] or [`Error::Io`].
    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
        way_out: &'static str,
    ) -> Error {
        let (path, source) = (path.as_ref().to_path_buf(), source.into());
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EROFS) => {
                Error::NotPermitted { action, path, source, way_out }
            }
            _ => Error::Io { action, path, source, way_out },
        }
    }

    /// As [`Error::io`], but ENOENT and ESRCH mean that the process or thread has ended.
    pub(crate) fn task(
        action: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
        way_out: &'static str,
    ) -> Error {
        let source = source.into();
        match source.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Error::Gone { action, path: path.as_ref().to_path_buf() },
            _ => Error::io(action, path, source, way_out),
        }
    }

    /// A kernel file that does not parse.
    pub(crate) fn malformed(path: impl AsRef<Path>, expected: &'static str, found: &str) -> Error {
        Error::Malformed { path: path.as_ref().to_path_buf(), expected, found: quote(found) }
    }

    /// A value of the caller's outside its limits.
    pub(crate) fn invalid(what: &'static str, value: impl AsRef<str>, expected: &'static str) -> Error {
        Error::Invalid { what, value: quote(value.as_ref()), expected }
    }

    /// Whether the cause is missing rights. A test may then be skipped, and a command exits with 69.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Error::NotPermitted { .. })
    }

    /// Whether the cause is that the process or thread has ended.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. })
    }
}

/// Names a thread in an error, in place of a path.
pub(crate) fn thread_path(tid: i32) -> PathBuf {
    PathBuf::from(format!("thread {tid}"))
}

fn quote(text: &str) -> String {
    let mut end = text.len().min(QUOTE_LIMIT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let refused = Error::io("write", "/x", io::Error::from_raw_os_error(libc::EROFS), "run as root");
        assert!(refused.is_not_permitted());
        assert!(refused.to_string().contains("run as root"));
        let gone = Error::task("read", "/x", io::Error::from_raw_os_error(libc::ESRCH), "");
        assert!(gone.is_gone());
    }

    #[test]
    fn quotations_are_bounded_and_keep_characters_whole() {
        assert_eq!(quote("short"), "short");
        let long = "ü".repeat(QUOTE_LIMIT_BYTES);
        assert_eq!(quote(&long).len(), QUOTE_LIMIT_BYTES);
        assert!(quote(&format!("x{long}")).len() < QUOTE_LIMIT_BYTES);
    }
}
