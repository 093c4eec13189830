//! Reading `/proc`: what ran, what waited, how much memory is left, and who a process is.
//!
//! The root is handed in, so that everything here also works on a fake tree. Invariants: nothing is
//! written; every file is read to a limit; time is in nanoseconds and sizes in bytes, whatever unit the
//! kernel prints. Source: proc(5) and the kernel's Documentation/scheduler/sched-stats.rst.

mod block;
mod books;
mod cpus;
mod process;
mod schedstat;
mod steal;
mod system;
mod task;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

pub use block::DiskTotals;
pub use books::CpuBooks;
pub use cpus::SysCpus;
pub use process::MAX_THREADS;
pub use schedstat::{SchedStat, SchedStatReader};
pub use steal::StealReader;
pub use system::{CpuTime, CpuTimes, MemInfo, allowed_cpus};
pub use task::{TaskIdentity, TaskStat, TaskStatReader};

/// The most that is read of one file below `/proc`, in bytes. `/proc/stat` of a 4096-CPU host and
/// `mountinfo` of a container host stay below.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// Where `/proc` is mounted. `ProcRoot::default()` is the live one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcRoot(PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        ProcRoot(PathBuf::from("/proc"))
    }
}

impl ProcRoot {
    /// A root elsewhere: a fake tree, or the `/proc` of another PID namespace.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        ProcRoot(root.into())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `relative` below the root.
    pub(crate) fn join(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.0.join(relative)
    }

    /// Reads a file that belongs to the system as a whole.
    pub(crate) fn read_system(&self, relative: &str) -> Result<String> {
        let path = self.join(relative);
        read_bounded(&path).map_err(|e| Error::io("read", &path, e, "is /proc mounted and readable?"))
    }

    /// Reads a file that belongs to a process or thread, which may end at any time.
    pub(crate) fn read_task(&self, relative: &str) -> Result<String> {
        let path = self.join(relative);
        read_bounded(&path).map_err(|e| {
            Error::task(
                "read",
                &path,
                e,
                "run as the user who owns the process, or as root (is /proc hidepid?)",
            )
        })
    }
}

/// Reads at most [`MAX_FILE_BYTES`], with bytes that are not UTF-8 replaced (thread names are any bytes).
fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    })
}

#[cfg(test)]
pub(crate) mod fake {
    //! A fake `/proc` in a temporary directory.

    use super::ProcRoot;
    use tempfile::TempDir;

    /// Owns the temporary directory; `root` points into it.
    pub(crate) struct FakeProc {
        pub(crate) root: ProcRoot,
        dir: TempDir,
    }

    impl FakeProc {
        pub(crate) fn new() -> FakeProc {
            let dir = tempfile::tempdir().unwrap();
            FakeProc { root: ProcRoot::new(dir.path()), dir }
        }

        /// Writes a file, making its directories.
        pub(crate) fn put(&self, relative: &str, text: &str) -> &FakeProc {
            let path = self.dir.path().join(relative);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }

        pub(crate) fn remove(&self, relative: &str) {
            std::fs::remove_dir_all(self.dir.path().join(relative)).unwrap();
        }
    }
}
