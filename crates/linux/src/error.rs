//! The one error type of this crate: what was tried, on which path, why it failed, and a way out.
//!
//! Invariant: every value that came from the machine and is quoted here is cut to [`QUOTE_LIMIT_BYTES`].

use std::io;
use std::path::{Path, PathBuf};

/// The longest quotation of machine data in a message, in bytes.
pub const QUOTE_LIMIT_BYTES: usize = 80;

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong between a probe or an actuator and the machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused for lack of rights (EPERM, EACCES) or on a read-only mount (EROFS).
    #[error("not permitted to {action} {}: {source}; {way_out}", path.display())]
    NotPermitted {
        /// What was tried, as a verb: "write", "open", "set the affinity of".
        action: &'static str,
        /// The file, directory or thread it was tried on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
        /// What the user can do.
        way_out: &'static str,
    },
    /// The process or thread has ended.
    #[error("cannot {action} {}: the process or thread has ended; look its id up again", path.display())]
    Gone {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or thread it was tried on.
        path: PathBuf,
    },
    /// Any other refusal of the kernel.
    #[error("cannot {action} {}: {source}; {way_out}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file, directory or thread it was tried on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
        /// What the user can do.
        way_out: &'static str,
    },
    /// A kernel file does not look as documented.
    #[error("{}: expected {expected}, found {found:?}; this kernel's format is not known, please report it", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What should have been there.
        expected: &'static str,
        /// What was there instead, cut to [`QUOTE_LIMIT_BYTES`].
        found: String,
    },
    /// The machine lacks a feature.
    #[error("this machine has no {what} (looked at {}); {way_out}", path.display())]
    Missing {
        /// The feature.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// What the user can do.
        way_out: &'static str,
    },
    /// A value handed in by the caller is outside its limits.
    #[error("{what} {value:?} is not acceptable: {expected}")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// The value, cut to [`QUOTE_LIMIT_BYTES`].
        value: String,
        /// The limits it must keep, and how to keep them.
        expected: &'static str,
    },
}

impl Error {
    /// Sorts an I/O error on `path` into [`Error::NotPermitted`] or [`Error::Io`].
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

    /// A value handed in that is out of its limits.
    pub(crate) fn invalid(what: &'static str, value: impl AsRef<str>, expected: &'static str) -> Error {
        Error::Invalid { what, value: quote(value.as_ref()), expected }
    }

    /// Whether lack of rights is the cause: a test may then skip, a command exit with 69.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Error::NotPermitted { .. })
    }

    /// Whether the process or thread it was about has ended.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. })
    }
}

/// Names a thread in an error, in the place of a path.
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
