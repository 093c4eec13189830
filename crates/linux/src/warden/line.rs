//! Encodes and decodes the lines from the main process to the warden, without I/O.
//!
//! Invariants: an object that passes [`Guarded::check`] survives encoding and decoding, and its name makes it safe to
//! remove; every decoded line has passed the same check. A path may contain any bytes except newline and NUL.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::cgroup::DIRECTORY_PREFIX;
use crate::proc::ProcRoot;
use crate::{Error, Result};

/// The longest path, like the kernel's PATH_MAX.
const MAX_PATH_BYTES: usize = 4096;
/// The longest line without its newline: two numbers of 20 digits may stand before a path.
pub(super) const MAX_LINE_BYTES: usize = MAX_PATH_BYTES + "+quota ".len() + 2 * 21;
/// The files that hold a group's quota, under cgroup v1 and v2.
const QUOTA_FILES: [&str; 2] = ["cpu.cfs_quota_us", "cpu.max"];

/// An object that must not outlive the main process. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the text at each says what the fields are")]
pub enum Guarded {
    /// The process with this PID that started so many clock ticks after boot; it is killed.
    Process { pid: i32, start_ticks: u64 },
    /// A cgroup that is, or whose parent is, named `reprieve-*`; its tasks are moved up, and it is removed with its
    /// children.
    Cgroup(PathBuf),
    /// A directory named `reprieve-*`; it is removed with its contents.
    Dir(PathBuf),
    /// A state file of `reprieve migrate`; the masks in it are restored.
    Masks(PathBuf),
    /// A file `cpu.cfs_quota_us` or `cpu.max` of any cgroup; the quota, in us per period in us, is put back.
    Quota { path: PathBuf, quota_us: u64, period_us: u64 },
}

impl Guarded {
    /// The process that currently has this PID.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such process.
    pub fn process(root: &ProcRoot, pid: i32) -> Result<Guarded> {
        Ok(Guarded::Process { pid, start_ticks: root.start_time_ticks(pid)? })
    }

    /// Checks that a warden would accept it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a PID below 2, and for a path that is relative, longer than 4096 bytes, contains `..` or a
    /// newline, or does not have the required name.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |expected| Err(Error::invalid("guarded object", format!("{self:?}"), expected));
        match self {
            Guarded::Process { pid, .. } if *pid < 2 => invalid("use a PID of at least 2"),
            Guarded::Process { .. } => Ok(()),
            Guarded::Masks(path) if is_text(path) => Ok(()),
            Guarded::Masks(_) => {
                invalid("use an absolute path of at most 4096 bytes without newline and NUL")
            }
            Guarded::Cgroup(path) | Guarded::Dir(path) if !is_plain(path) => {
                invalid("use an absolute path of at most 4096 bytes without newline, NUL, . and ..")
            }
            Guarded::Quota { path, .. } if !is_plain(path) => {
                invalid("use an absolute path of at most 4096 bytes without newline, NUL, . and ..")
            }
            Guarded::Quota { path, .. } if !QUOTA_FILES.iter().any(|name| path.ends_with(name)) => {
                invalid("name a file cpu.cfs_quota_us or cpu.max")
            }
            Guarded::Quota { .. } => Ok(()),
            Guarded::Cgroup(path) if !has_prefix(path) && !path.parent().is_some_and(has_prefix) => {
                invalid("name a cgroup reprieve-*, or a child of one")
            }
            Guarded::Dir(path) if !has_prefix(path) => invalid("name a directory reprieve-*"),
            Guarded::Cgroup(_) | Guarded::Dir(_) => Ok(()),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let with_path = |word: &str, path: &Path| [word.as_bytes(), path.as_os_str().as_bytes()].concat();
        match self {
            Guarded::Process { pid, start_ticks } => format!("process {pid} {start_ticks}").into_bytes(),
            Guarded::Cgroup(path) => with_path("cgroup ", path),
            Guarded::Dir(path) => with_path("dir ", path),
            Guarded::Masks(path) => with_path("masks ", path),
            Guarded::Quota { path, quota_us, period_us } => {
                with_path(&format!("quota {quota_us} {period_us} "), path)
            }
        }
    }

    fn decode(text: &[u8]) -> Option<Guarded> {
        let space = text.iter().position(|&byte| byte == b' ')?;
        let (word, rest) = (&text[..space], &text[space + 1..]);
        let path = || PathBuf::from(OsStr::from_bytes(rest));
        let guarded = match word {
            b"process" => {
                let (pid, ticks) = std::str::from_utf8(rest).ok()?.split_once(' ')?;
                Guarded::Process { pid: pid.parse().ok()?, start_ticks: ticks.parse().ok()? }
            }
            b"cgroup" => Guarded::Cgroup(path()),
            b"dir" => Guarded::Dir(path()),
            b"masks" => Guarded::Masks(path()),
            b"quota" => {
                let mut parts = rest.splitn(3, |&byte| byte == b' ');
                let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
                let (quota_us, period_us) = (number()?, number()?);
                let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
                Guarded::Quota { path, quota_us, period_us }
            }
            _ => return None,
        };
        guarded.check().is_ok().then_some(guarded)
    }
}

/// A message from the main process to the warden, or a line of its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Guard(Guarded),
    Release(Guarded),
}

impl Line {
    /// The line, including its newline.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (sign, guarded) = match self {
            Line::Guard(guarded) => (b'+', guarded),
            Line::Release(guarded) => (b'-', guarded),
        };
        let mut bytes = vec![sign];
        bytes.extend(guarded.encode());
        bytes.push(b'\n');
        bytes
    }

    /// Decodes a line without its newline; `None` unless it is entirely valid.
    pub(super) fn decode(text: &[u8]) -> Option<Line> {
        let (sign, rest) = text.split_first()?;
        match sign {
            b'+' => Some(Line::Guard(Guarded::decode(rest)?)),
            b'-' => Some(Line::Release(Guarded::decode(rest)?)),
            _ => None,
        }
    }
}

/// Whether this is an absolute path that fits into a line.
fn is_text(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let is_line = !bytes.iter().any(|byte| matches!(byte, b'\n' | 0));
    is_line && bytes.len() <= MAX_PATH_BYTES && path.is_absolute()
}

fn is_plain(path: &Path) -> bool {
    // `components` hides inner dots, so check the text.
    let mut names = path.as_os_str().as_bytes().split(|&byte| byte == b'/');
    is_text(path) && !names.any(|name| matches!(name, b"." | b".."))
}

/// Whether the last name of the path has the prefix of all directories made here.
fn has_prefix(path: &Path) -> bool {
    match path.components().next_back() {
        Some(Component::Normal(name)) => name.as_bytes().starts_with(DIRECTORY_PREFIX.as_bytes()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_pipe() {
        for guarded in [
            Guarded::Process { pid: 42, start_ticks: u64::MAX },
            Guarded::Cgroup("/cg/reprieve-1-2".into()),
            Guarded::Cgroup("/cg/reprieve-1-2/quota".into()),
            Guarded::Dir("/tmp/with space/reprieve-x y".into()),
            Guarded::Dir(OsStr::from_bytes(b"/tmp/reprieve-\xff").into()),
            Guarded::Masks("/tmp/of a user/../state".into()),
            Guarded::Quota { path: "/cg/a vm/cpu.max".into(), quota_us: u64::MAX, period_us: u64::MAX },
            Guarded::Quota { path: "/cg/vcpu1/cpu.cfs_quota_us".into(), quota_us: 1, period_us: 2 },
        ] {
            guarded.check().unwrap();
            for line in [Line::Guard(guarded.clone()), Line::Release(guarded)] {
                let bytes = line.encode();
                assert_eq!(bytes.last(), Some(&b'\n'));
                assert_eq!(Line::decode(&bytes[..bytes.len() - 1]), Some(line));
            }
        }
    }

    #[test]
    fn the_wire_is_as_documented() {
        let line = Line::Guard(Guarded::Process { pid: 42, start_ticks: 7 });
        assert_eq!(line.encode(), b"+process 42 7\n");
        assert_eq!(Line::Release(Guarded::Dir("/t/reprieve-a".into())).encode(), b"-dir /t/reprieve-a\n");
    }

    #[test]
    fn objects_with_other_names_are_refused() {
        for text in [
            "+dir /tmp",
            "+dir /",
            "+dir /tmp/reprieve-x/child",
            "+dir /tmp/reprieve-x/..",
            "+dir /tmp/../reprieve-x",
            "+dir /tmp/./reprieve-x",
            "+dir tmp/reprieve-x",
            "+dir reprieve-x",
            "+dir ",
            "+cgroup /sys/fs/cgroup",
            "+cgroup /cg/reprieve-x/a/b",
            "+masks state",
            "+masks ",
            "+quota 1 2 /etc/passwd",
            "+quota 1 2 cpu.max",
            "+quota 1 2 /cg/../cpu.max",
            "+quota 1 2",
            "+quota 1 /cg/cpu.max",
            "+quota x 2 /cg/cpu.max",
            "+quota 1 2 /cg/xcpu.max",
            "+process 1 5",
            "+process -4 5",
            "+process 0 5",
            "+process 42",
            "+process 42 5 6",
            "+process x 5",
            "dir /tmp/reprieve-x",
            "+file /tmp/reprieve-x",
            "+",
            "",
        ] {
            assert_eq!(Line::decode(text.as_bytes()), None, "{text:?}");
        }
        assert!(Guarded::Dir("/tmp/a\nb/reprieve-x".into()).check().is_err());
        assert!(Guarded::Dir(format!("/{}/reprieve-x", "y".repeat(5000)).into()).check().is_err());
    }
}
