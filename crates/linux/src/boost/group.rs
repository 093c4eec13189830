//! Changes the quota of an existing cgroup while time is lent to its threads.
//!
//! Invariant: when a [`Group`] is dropped, its original quota is put back if it was changed. The files stay open, so
//! they remain those of the group that was opened, even if another one takes its path later. Source: the kernel's
//! Documentation/scheduler/sched-bwc.rst and admin-guide/cgroup-v2.rst.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::warden::Guarded;
use crate::{Error, Result};

const WAY_OUT: &str = "run as root, or as the user who owns the group";
/// Size of the buffer for `cpu.stat`, which is always shorter.
const STAT_BYTES: usize = 1024;

/// A cgroup whose quota limits some of a VM's vCPUs, and no other busy thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The cgroup's directory in the hierarchy of the cpu controller, v1 or v2.
    pub directory: PathBuf,
    /// The vCPUs whose threads are in it.
    pub vcpus: Vec<usize>,
}

/// A group's control files.
#[derive(Debug)]
pub struct Group {
    /// `cpu.cfs_quota_us` or `cpu.max`.
    path: PathBuf,
    file: File,
    stat: File,
    quota_us: u64,
    period_us: u64,
    is_v2: bool,
    is_changed: bool,
}

impl Group {
    /// Opens a group's files and reads its quota.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group without a quota; [`Error::NotPermitted`]; [`Error::Io`] if the directory is not a
    /// group of the cpu controller.
    pub fn open(directory: &Path) -> Result<Group> {
        let v2 = directory.join("cpu.max");
        let is_v2 = v2.exists();
        let path = if is_v2 { v2 } else { directory.join("cpu.cfs_quota_us") };
        let text = read(&path)?;
        let (quota, period) = match is_v2 {
            true => text.split_once(' ').map(|(quota, period)| (quota.into(), period.into())),
            false => Some((text.clone(), read(&directory.join("cpu.cfs_period_us"))?)),
        }
        .ok_or_else(|| Error::malformed(&path, "a quota and a period", &text))?;
        let unlimited = || {
            let expected = "choose a group with a quota; without one nothing is throttled";
            Error::invalid("cgroup", directory.display().to_string(), expected)
        };
        let quota_us: u64 = quota.trim().parse().map_err(|_| unlimited())?;
        let malformed = |_| Error::malformed(&path, "a period in us", &period);
        let period_us = period.trim().parse().map_err(malformed)?;
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let stat_path = directory.join("cpu.stat");
        let stat = File::open(&stat_path).map_err(|e| Error::io("open", &stat_path, e, WAY_OUT))?;
        let file = file.map_err(|e| Error::io("open", &path, e, WAY_OUT))?;
        Ok(Group { path, file, stat, quota_us, period_us, is_v2, is_changed: false })
    }

    /// The quota that the group had when it was opened, ns per period.
    pub fn quota_ns(&self) -> u64 {
        self.quota_us * 1000
    }

    /// The length of a period, ns.
    pub fn period_ns(&self) -> u64 {
        self.period_us * 1000
    }

    /// The quota that the group had when it was opened, for the warden to put back.
    pub fn guarded(&self) -> Guarded {
        Guarded::Quota { path: self.path.clone(), quota_us: self.quota_us, period_us: self.period_us }
    }

    /// The kernel's count of periods in which the group had something to run.
    pub fn periods(&self) -> Result<u64> {
        let mut buffer = [0; STAT_BYTES];
        let length =
            self.stat.read_at(&mut buffer, 0).map_err(|e| Error::io("read", &self.path, e, WAY_OUT))?;
        let text = std::str::from_utf8(&buffer[..length]).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("nr_periods ")?.trim().parse().ok());
        count.ok_or_else(|| Error::malformed(self.path.with_file_name("cpu.stat"), "nr_periods", text))
    }

    /// Writes a quota, which takes effect at once.
    pub fn write(&mut self, quota_ns: u64) -> Result<()> {
        self.is_changed = true;
        self.put(quota_ns / 1000)
    }

    /// Puts the original quota back, if it was changed since the last call.
    ///
    /// # Errors
    /// [`Error::Io`]. It is not an error if the group was removed.
    pub fn restore(&mut self) -> Result<()> {
        match std::mem::take(&mut self.is_changed) {
            true => {
                self.put(self.quota_us).or_else(|error| if error.is_gone() { Ok(()) } else { Err(error) })
            }
            false => Ok(()),
        }
    }

    fn put(&self, quota_us: u64) -> Result<()> {
        let text = self.text(quota_us);
        let written = self.file.write_at(text.as_bytes(), 0).map(drop);
        written.map_err(|e| match e.raw_os_error() {
            // The group was removed.
            Some(libc::ENODEV) => Error::Gone { action: "write a quota to", path: self.path.clone() },
            _ => Error::io("write a quota to", &self.path, e, WAY_OUT),
        })
    }

    fn text(&self, quota_us: u64) -> String {
        match self.is_v2 {
            true => format!("{quota_us} {}\n", self.period_us),
            false => format!("{quota_us}\n"),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A drop cannot report errors. Callers that need them call `restore` first.
        let _ = self.restore();
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e, WAY_OUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let stat = ("cpu.stat", "usage_usec 5\nnr_periods 12\nnr_throttled 3\n");
        files.iter().chain([&stat]).for_each(|(name, text)| {
            std::fs::write(directory.path().join(name), text).unwrap();
        });
        directory
    }

    #[test]
    fn both_versions_are_read_written_and_put_back() {
        let v1 = fake(&[("cpu.cfs_quota_us", "20000\n"), ("cpu.cfs_period_us", "100000\n")]);
        let v2 = fake(&[("cpu.max", "20000 100000\n")]);
        for (directory, name, lent, back) in [
            (&v1, "cpu.cfs_quota_us", "10000\n", "20000\n"),
            (&v2, "cpu.max", "10000 100000\n", "20000 100000\n"),
        ] {
            let text = || std::fs::read_to_string(directory.path().join(name)).unwrap();
            let mut group = Group::open(directory.path()).unwrap();
            assert_eq!((group.quota_ns(), group.period_ns()), (20_000_000, 100_000_000));
            assert_eq!(group.periods().unwrap(), 12);
            let path = directory.path().join(name);
            assert_eq!(group.guarded(), Guarded::Quota { path, quota_us: 20_000, period_us: 100_000 });
            group.write(10_000_000).unwrap();
            assert_eq!(text(), lent);
            drop(group);
            assert_eq!(text(), back);
        }
    }

    #[test]
    fn a_group_without_a_quota_is_refused() {
        let v1 = fake(&[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]);
        let v2 = fake(&[("cpu.max", "max 100000\n")]);
        for directory in [&v1, &v2] {
            let error = Group::open(directory.path()).unwrap_err().to_string();
            assert!(error.contains("without one nothing is throttled"), "{error}");
        }
        assert!(Group::open(Path::new("/nonexistent")).is_err());
    }
}
