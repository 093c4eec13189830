//! The lock that lets only one process at a time boost on a host: two processes that boost the same guests would write the
//! same quotas.
//!
//! The lock's file is also a journal of the quotas that the process may have lowered, in the format of the
//! [warden](crate::warden)'s lines. If the process and its warden are both killed, the next process that takes the lock puts
//! these quotas back.

use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::migrate::own_file;
use crate::warden::{Guarded, Line, listen, put_back_if_lowered};
use crate::{Error, Result};

const WAY_OUT: &str = "run as root";

/// Holds the lock. Dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Creates the file at `path`, which is never removed, and locks it. Puts back the quotas that a killed process has left
    /// lowered.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another process holds it; [`Error::NotPermitted`]; [`Error::Io`].
    pub fn take(path: &Path) -> Result<Lock> {
        let refused = |e: std::io::Error| Error::io("lock", path, e, WAY_OUT);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(refused)?;
        }
        let file = own_file::open(path).map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let expected = "another `reprieve boost --apply` holds it, and one serves all guests of a host: end that one first";
                return Err(Error::invalid("lock", path.display().to_string(), expected));
            }
            Err(TryLockError::Error(e)) => return Err(refused(e)),
        }
        // If a quota cannot be put back, the journal stays as it is, for the next attempt.
        listen(&file).iter().try_for_each(put_back_if_lowered)?;
        file.set_len(0).map_err(refused)?;
        Ok(Lock { file, path: path.to_path_buf() })
    }

    /// Notes that a quota may be lowered from now on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn guard(&self, object: Guarded) -> Result<()> {
        self.append(&Line::Guard(object))
    }

    /// Notes that a quota has its first value again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn release(&self, object: Guarded) -> Result<()> {
        self.append(&Line::Release(object))
    }

    fn append(&self, line: &Line) -> Result<()> {
        let mut file = &self.file;
        let written = file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(&line.encode()));
        written.map_err(|e| Error::io("write", &self.path, e, "free some space there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_until_the_first_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/boost.lock");
        let first = Lock::take(&path).unwrap();
        let error = Lock::take(&path).unwrap_err().to_string();
        assert!(error.contains("another `reprieve boost --apply`"), "{error}");
        drop(first);
        Lock::take(&path).unwrap();
    }

    #[test]
    fn what_is_still_guarded_is_in_the_file_until_somebody_takes_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boost.lock");
        let quota = |name: &str| Guarded::Quota {
            path: folder.path().join(name),
            quota_us: 20_000,
            period_us: 100_000,
        };
        let (first, second) = (quota("a/cpu.max"), quota("b/cpu.max"));
        let lock = Lock::take(&path).unwrap();
        lock.guard(first.clone()).unwrap();
        lock.guard(second.clone()).unwrap();
        lock.release(first).unwrap();
        drop(lock);
        let left: Vec<Guarded> = listen(File::open(&path).unwrap()).into_iter().collect();
        assert_eq!(left, [second]);
        // Its group has been removed, so there is nothing to put back.
        let lock = Lock::take(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        let other = quota("c/cpu.max");
        lock.guard(other.clone()).unwrap();
        assert_eq!(listen(File::open(&path).unwrap()).into_iter().collect::<Vec<_>>(), [other]);
    }
}
