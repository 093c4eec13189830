//! Reads `/proc`: what ran, what waited, how much memory is left, and the identity of processes.
//!
//! The caller gives the root, so everything here also works on a fake tree. Invariants: nothing is written; every file
//! is read up to a limit; times are in nanoseconds and sizes in bytes, whatever unit the kernel prints.
//!
//! Errors of all functions here: [`Error::Gone`] if the process or task has ended or does not exist, [`Error::NotPermitted`],
//! [`Error::Io`] if the kernel has no such file, and [`Error::Malformed`] if it is not as documented.
//!
//! The files are parsed by hand, since procfs-core allocates on every read, which the readers in the daemon's beat must
//! not, and for the other files it would save a few lines each. Source: proc(5) and the kernel's
//! Documentation/scheduler/sched-stats.rst.

mod block;
mod cpus;
mod foreign_cpu;
mod process;
mod reread;
mod schedstat;
mod steal;
mod system;
mod task;

use std::fs::{DirEntry, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use reprieve_policy::SECOND_NS;

use crate::{Error, Result};

pub use block::DiskTotals;
pub use cpus::SysCpus;
pub use foreign_cpu::ForeignCpu;
pub use process::MAX_THREADS;
pub(crate) use reread::Reread;
pub use schedstat::{SchedStat, SchedStatReader};
pub use steal::StealReader;
pub use system::allowed_cpus;
pub(crate) use system::{cpu_ticks, is_cpu_line, psi_total_ns};
pub use task::{TaskIdentity, TaskStat, TaskStatReader};

/// The most bytes read from one file below `/proc`. The `/proc/stat` of a 4096-CPU host and the `mountinfo` of a
/// container host are smaller.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

const WAY_OUT_SYSTEM: &str = "is /proc mounted and readable?";
const WAY_OUT_TASK: &str = "run as the user who owns the process, or as root (is /proc hidepid?)";

/// The directory where `/proc` is mounted. `ProcRoot::default()` is the live one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcRoot(PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        ProcRoot(PathBuf::from("/proc"))
    }
}

impl ProcRoot {
    /// Another root: a fake tree, or the `/proc` of another PID namespace.
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

    /// Reads a file about the whole system.
    pub(crate) fn read_system(&self, relative: &str) -> Result<String> {
        let path = self.join(relative);
        read_bounded(&path).map_err(|e| Error::io("read", &path, e, WAY_OUT_SYSTEM))
    }

    /// Reads a file about a process or thread, which may end at any time.
    pub fn read_task(&self, relative: &str) -> Result<String> {
        let path = self.join(relative);
        read_bounded(&path).map_err(|e| Error::task("read", &path, e, WAY_OUT_TASK))
    }
}

/// The clock tick of `/proc`, 1/USER_HZ s, ns: the unit of start times and CPU times.
pub(crate) fn tick_ns() -> u64 {
    SECOND_NS / rustix::param::clock_ticks_per_second().max(1)
}

/// The processes or threads of a directory, ascending.
fn ids(entries: impl Iterator<Item = std::io::Result<DirEntry>>) -> Vec<i32> {
    let mut ids: Vec<i32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// Reads at most [`MAX_FILE_BYTES`] and replaces bytes that are not UTF-8 (thread names may contain any).
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
