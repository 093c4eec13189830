//! Only one process at a time lends quotas on a host: two that watch the same guests would write the same files.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::migrate::own_file;
use crate::{Error, Result};

const WAY_OUT: &str = "run as root";

/// Holds the lock. Dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Makes the file at `path`, which is never removed, and locks it.
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
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => {
                let expected = "another `reprieve boost --apply` holds it, and one serves all guests of a host: end that one first";
                Err(Error::invalid("lock", path.display().to_string(), expected))
            }
            Err(TryLockError::Error(e)) => Err(refused(e)),
        }
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
}
