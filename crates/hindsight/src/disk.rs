//! The folder that a ring is in. One writer at a time has it; that is seen to by a lock, which the kernel releases when the
//! writer ends, however it ends.
//!
//! Files are made for their owner alone, and never through a link. A file of another kind or name is never touched: a segment is
//! named `hindsight-NUMBER.segment`, and begins as one.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::line::MAGIC;

/// The lock's name.
const LOCK: &str = "hindsight.lock";
const PREFIX: &str = "hindsight-";
const SUFFIX: &str = ".segment";
/// Digits of a segment's number.
const DIGITS: usize = 12;
/// Most segments of a folder. A ring has some hundreds.
const MOST_SEGMENTS: usize = 100_000;

/// What a ring needs of a disk. Tests have one that is full when they want.
pub trait Disk {
    /// An open segment.
    type File;

    /// Makes a file that must not exist.
    ///
    /// # Errors
    /// The kernel's.
    fn create(&mut self, name: &str) -> io::Result<Self::File>;

    /// Appends all bytes.
    ///
    /// # Errors
    /// The kernel's; a part may have been written.
    fn append(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file to a length, and appends there from now on.
    ///
    /// # Errors
    /// The kernel's.
    fn cut(&mut self, file: &mut Self::File, length: u64) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The kernel's.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Room for this user, bytes; `None` if the disk does not tell.
    fn room(&self) -> Option<u64>;
}

/// A folder, locked.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is not there (its parent must be), and locks it.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if another process has the lock; the kernel's.
    pub fn lock(path: &Path) -> io::Result<Folder> {
        // A link to a folder is what the user names.
        make(&std::fs::canonicalize(path).unwrap_or_else(|_| path.into()))?;
        // Before an incident, not at it.
        let dumps = path.join(DUMPS);
        if dumps.symlink_metadata().is_ok() {
            make(&dumps)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(careful());
        let lock = options.open(path.join(LOCK))?;
        if !is_own(&lock)? {
            return Err(foreign());
        }
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        Ok(Folder { path: path.into(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Disk for Folder {
    type File = File;

    fn create(&mut self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600).custom_flags(careful());
        options.open(self.path.join(name))
    }

    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn cut(&mut self, file: &mut File, length: u64) -> io::Result<()> {
        file.set_len(length)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn room(&self) -> Option<u64> {
        let room = rustix::fs::statvfs(&self.path).ok()?;
        Some(room.f_bavail.saturating_mul(room.f_frsize))
    }
}

/// The folder of dumps within that of the ring.
pub(crate) const DUMPS: &str = "dumps";

/// Makes a folder for its owner alone, unless it is there. One that is there must be ours, and nobody else's to write: its other owner
/// could replace what is in it by links.
///
/// # Errors
/// The kernel's; [`ErrorKind::NotADirectory`].
pub(crate) fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(path)?;
            if !found.is_dir() {
                return Err(ErrorKind::NotADirectory.into());
            }
            let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            // A group of the user's own is usual, and so is that it may write.
            let open = if found.gid() == group { 0o002 } else { 0o022 };
            match (found.uid() == user, found.mode() & open == 0) {
                (true, true) => Ok(()),
                (false, _) => Err(refused("the folder belongs to another user")),
                (_, false) => Err(refused("others may write to the folder: chmod go-w")),
            }
        }
        made => made,
    }
}

/// Not through a link, and without waiting for the other end of a pipe.
pub(crate) fn careful() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32
}

fn refused(problem: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, problem)
}

/// Whether a file is regular, ours, and has no other name.
fn is_own(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    Ok(found.is_file() && found.nlink() == 1 && found.uid() == rustix::process::geteuid().as_raw())
}

fn foreign() -> io::Error {
    let problem = format!("{LOCK} in it belongs to another user, has a second name, or is no regular file");
    io::Error::new(ErrorKind::PermissionDenied, problem)
}

/// The name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{PREFIX}{number:0DIGITS$}{SUFFIX}")
}

fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let is_one = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_one)
}

/// A segment that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub number: u64,
    pub path: PathBuf,
}

/// The segments in a folder, the oldest first.
///
/// # Errors
/// The kernel's.
pub(crate) fn segments(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(segment_number);
        let Some(number) = number.filter(|_| begins_as_one(&entry.path())) else { continue };
        found.push(Found { number, path: entry.path() });
        if found.len() > MOST_SEGMENTS {
            return Err(io::Error::other(format!(
                "more than {MOST_SEGMENTS} segments; move the oldest away"
            )));
        }
    }
    found.sort_unstable_by_key(|found| found.number);
    Ok(found)
}

/// Whether a file begins as a segment or a dump does, or is what is left of one whose writer was killed right then.
pub(crate) fn begins_as_one(path: &Path) -> bool {
    let begin = || {
        let mut begin = Vec::new();
        open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
        Ok::<_, io::Error>(begin)
    };
    begin().is_ok_and(|begin| MAGIC.as_bytes().starts_with(&begin))
}

/// Opens a regular file, not through a link.
///
/// # Errors
/// The kernel's; it is no regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(careful()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_and_its_files_are_for_their_owner_and_for_one_writer() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("ring");
        let mut folder = Folder::lock(&path).unwrap();
        assert_eq!(Folder::lock(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
        folder.create(&segment_name(1)).unwrap();
        assert!(folder.create(&segment_name(1)).is_err());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = [mode(&path), mode(&path.join(LOCK)), mode(&path.join(segment_name(1)))];
        assert_eq!(modes, [0o700, 0o600, 0o600]);
        drop(folder);
        Folder::lock(&path).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_and_a_link_to_dumps_is_too() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("ring");
        drop(Folder::lock(&path).unwrap());
        let allow = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        allow(0o777);
        assert_eq!(Folder::lock(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
        allow(0o700);
        symlink("/tmp", path.join(DUMPS)).unwrap();
        assert_eq!(Folder::lock(&path).unwrap_err().kind(), ErrorKind::NotADirectory);
        // A link to the ring is what the user names.
        std::fs::remove_file(path.join(DUMPS)).unwrap();
        let link = parent.path().join("link");
        symlink(&path, &link).unwrap();
        Folder::lock(&link).unwrap();
    }

    #[test]
    fn links_and_foreign_files_are_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path();
        std::fs::write(path.join("secret"), "kept").unwrap();
        symlink(path.join("secret"), path.join(LOCK)).unwrap();
        assert!(Folder::lock(path).is_err());
        std::fs::remove_file(path.join(LOCK)).unwrap();
        std::fs::write(path.join(segment_name(1)), "foreign").unwrap();
        symlink(path.join("secret"), path.join(segment_name(2))).unwrap();
        std::fs::write(path.join("hindsight-1.segment"), MAGIC).unwrap();
        std::fs::write(path.join(segment_name(4)), MAGIC).unwrap();
        std::fs::write(path.join(segment_name(3)), &MAGIC[..3]).unwrap();
        let numbers: Vec<u64> = segments(path).unwrap().iter().map(|found| found.number).collect();
        assert_eq!(numbers, [3, 4]);
        let mut folder = Folder::lock(path).unwrap();
        assert!(folder.create(&segment_name(2)).is_err());
        assert_eq!(std::fs::read_to_string(path.join("secret")).unwrap(), "kept");
    }
}
