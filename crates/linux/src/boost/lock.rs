//! Only one process at a time lends quotas on a host: two that watch the same guests would write the same files.
//!
//! The lock's file also lists the quotas that may be lowered now, in the form of the [warden](crate::warden)'s lines. If the process and
//! its warden are both killed, the next process that takes the lock puts the quotas back.

use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::migrate::own_file;
use crate::warden::{Guarded, Line, listen, put_back_if_lowered};
use crate::{Error, Result};

const WAY_OUT: &str = "run as root";
/// A journal longer than this is made shorter, bytes: guests that start anew again and again would let it grow forever.
const LONG_BYTES: u64 = 64 * 1024;

/// Holds the lock. Dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Makes the file at `path`, which is never removed, and locks it. Puts back what a killed process has left lowered.
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
        // If one cannot be put back, the others are, and the journal stays as it is for the next attempt.
        listen(&file).iter().map(put_back_if_lowered).fold(Ok(()), Result::and)?;
        file.set_len(0).map_err(refused)?;
        Ok(Lock { file, path: path.to_path_buf() })
    }

    /// Writes down that a quota may be lent of.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that does not fit into a line; [`Error::Io`].
    pub fn guard(&self, object: Guarded) -> Result<()> {
        object.check()?;
        self.append(&Line::Guard(object))
    }

    /// Writes down that a quota is as it was.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn release(&self, object: Guarded) -> Result<()> {
        self.append(&Line::Release(object))
    }

    fn append(&self, line: &Line) -> Result<()> {
        // The newline in front ends what an attempt without space has left. Empty lines do not count.
        let bytes = [b"\n".as_slice(), &line.encode()].concat();
        let mut file = &self.file;
        let appended = file.seek(SeekFrom::End(0)).and_then(|end| {
            file.write_all(&bytes)?;
            if end > LONG_BYTES { self.shorten(end) } else { Ok(()) }
        });
        appended.map_err(|e| Error::io("write", &self.path, e, "free some space there"))
    }

    /// Writes what is guarded now over the journal's beginning, and then cuts the rest off. If the process is killed in
    /// between, the journal still says the same: its rest is what happened last.
    fn shorten(&self, length: u64) -> std::io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        let guarded = listen(file);
        let lines: Vec<u8> = guarded.into_iter().flat_map(|object| Line::Guard(object).encode()).collect();
        if lines.len() as u64 > length / 2 {
            return Ok(());
        }
        file.rewind()?;
        file.write_all(&lines)?;
        file.set_len(lines.len() as u64)
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

    #[test]
    fn a_journal_stays_short_and_survives_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boost.lock");
        let quota =
            |quota_us| Guarded::Quota { path: folder.path().join("a/cpu.max"), quota_us, period_us: 100_000 };
        let lock = Lock::take(&path).unwrap();
        let two_lines = Guarded::Quota {
            path: "/cg/a\n+quota 9 9 /cg/b/cpu.max".into(),
            quota_us: 20_000,
            period_us: 100_000,
        };
        assert!(lock.guard(two_lines).is_err());
        lock.guard(quota(1)).unwrap();
        for quota_us in 2..5_000 {
            lock.guard(quota(quota_us)).unwrap();
            lock.release(quota(quota_us)).unwrap();
        }
        assert!(std::fs::metadata(&path).unwrap().len() < 2 * LONG_BYTES);
        (&lock.file).seek(SeekFrom::End(0)).unwrap();
        (&lock.file).write_all(b"+quota 3 100000 /sys/fs/cg").unwrap();
        lock.guard(quota(2)).unwrap();
        let left: Vec<Guarded> = listen(File::open(&path).unwrap()).into_iter().collect();
        assert_eq!(left, [quota(1), quota(2)]);
    }
}
