//! Changes the quota of an existing cgroup while time is lent to its threads.
//!
//! Invariants: the group's quota is put back when a [`Group`] is dropped, unless the file holds it already. Only one may lend
//! to a group at a time: its file is locked. Files stay open, and are those of the group that was opened, whatever is at its path later.
//! Source: the kernel's Documentation/scheduler/sched-bwc.rst and admin-guide/cgroup-v2.rst.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use reprieve_policy::boost::LEAST_NS;

use crate::warden::Guarded;
use crate::{Error, Result};

const WAY_OUT: &str = "run as root, or as the user who owns the group";
/// Size of the buffer for `cpu.stat`, which is always shorter.
const STAT_BYTES: usize = 1024;
/// The least quota that time is lent of, us a period. A visit takes 1 ms at least; of less than twice that no period could be
/// shortened by it.
const LEAST_QUOTA_US: u64 = 2_000;
/// A period in which a vCPU is not off for much longer than a grace period lasts in any case.
const SHORT_PERIOD_NS: u64 = 10_000_000;

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
    /// The quota that this process wrote into the file last.
    held_us: u64,
    period_us: u64,
    burst_us: u64,
    is_v2: bool,
}

impl Group {
    /// Opens a group's files for reading alone, and reads its quota.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group without a quota; [`Error::NotPermitted`]; [`Error::Io`] if the directory is not a
    /// group of the cpu controller.
    pub fn open(directory: &Path) -> Result<Group> {
        Group::open_with(directory, false)
    }

    /// Opens a group in order to lend to it. It stays locked meanwhile.
    ///
    /// # Errors
    /// As [`Group::open`] and [`Group::check`], and [`Error::Invalid`] if another loop lends to it.
    pub fn to_lend(directory: &Path) -> Result<Group> {
        let group = Group::open_with(directory, true)?;
        group.check()?;
        match group.file.try_lock() {
            Ok(()) => Ok(group),
            Err(TryLockError::WouldBlock) => {
                let expected = "something lends to it already: end that one";
                Err(Error::invalid("cgroup", directory.display().to_string(), expected))
            }
            Err(TryLockError::Error(e)) => Err(Error::io("lock", &group.path, e, WAY_OUT)),
        }
    }

    /// Refuses a quota that boosts cannot borrow from, or cannot be paid back to.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a quota below 2 ms, and for one with a burst: what periods have saved up would be lost by a
    /// write, and would hide what is paid back.
    pub fn check(&self) -> Result<()> {
        let refused = |what, us: u64, expected| Err(Error::invalid(what, format!("{us} us"), expected));
        match (self.quota_us, self.burst_us) {
            (..LEAST_QUOTA_US, _) => refused(
                "quota",
                self.quota_us,
                "boosts need 2 ms a period: make the period longer, with the same share",
            ),
            (_, 1..) => refused(
                "burst",
                self.burst_us,
                "boosts need a quota without one: write 0 to cpu.max.burst (cpu.cfs_burst_us)",
            ),
            _ => Ok(()),
        }
    }

    fn open_with(directory: &Path, may_write: bool) -> Result<Group> {
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
        let burst = read(&directory.join(if is_v2 { "cpu.max.burst" } else { "cpu.cfs_burst_us" }));
        // Kernels before 5.14 have none.
        let burst_us = burst.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let file = OpenOptions::new().read(true).write(may_write).open(&path);
        let stat_path = directory.join("cpu.stat");
        let stat = File::open(&stat_path).map_err(|e| Error::io("open", &stat_path, e, WAY_OUT))?;
        let file = file.map_err(|e| Error::io("open", &path, e, WAY_OUT))?;
        Ok(Group { path, file, stat, quota_us, held_us: quota_us, period_us, burst_us, is_v2 })
    }

    /// A quota and a period in ns that grant the same share of a CPU in shorter periods; `None` if the period is short already.
    /// An administrator who sets them shortens grace periods without boosts.
    pub fn in_short_periods(&self) -> Option<(u64, u64)> {
        let (quota_ns, period_ns) = (self.quota_ns(), self.period_ns());
        // In so many milliseconds the share amounts to at least 1 ms, the least quota that the kernel accepts.
        let least_ms = period_ns.div_ceil(quota_ns.max(1));
        let short_ns = SHORT_PERIOD_NS.max(least_ms * LEAST_NS);
        let share_of = u128::from(quota_ns) * u128::from(short_ns) / u128::from(period_ns.max(1));
        (short_ns <= period_ns / 2).then_some((share_of as u64, short_ns))
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
        self.put(quota_ns / 1000)?;
        self.held_us = quota_ns / 1000;
        Ok(())
    }

    /// Puts the first quota back, if the file holds another. If that fails, the next call tries again.
    ///
    /// # Errors
    /// [`Error::Io`]. It is not an error if the group was removed.
    pub fn restore(&mut self) -> Result<()> {
        if self.held_us == self.quota_us {
            return Ok(());
        }
        match self.put(self.quota_us) {
            Err(error) if !error.is_gone() => Err(error),
            _ => {
                self.held_us = self.quota_us;
                Ok(())
            }
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
            let mut group = Group::to_lend(directory.path()).unwrap();
            assert_eq!((group.quota_ns(), group.period_ns()), (20_000_000, 100_000_000));
            assert_eq!(group.periods().unwrap(), 12);
            let path = directory.path().join(name);
            assert_eq!(group.guarded(), Guarded::Quota { path, quota_us: 20_000, period_us: 100_000 });
            group.write(10_000_000).unwrap();
            assert_eq!(text(), lent);
            let error = Group::to_lend(directory.path()).unwrap_err().to_string();
            assert!(error.contains("lends to it already"), "{error}");
            drop(group);
            assert_eq!(text(), back);
        }
    }

    #[test]
    fn a_long_period_could_be_shorter_with_the_same_share() {
        let short = |text: &str| Group::open(fake(&[("cpu.max", text)]).path()).unwrap().in_short_periods();
        assert_eq!(short("20000 100000\n"), Some((2_000_000, 10_000_000)));
        assert_eq!(short("150000 100000\n"), Some((15_000_000, 10_000_000)));
        assert_eq!(short("4000 100000\n"), Some((1_000_000, 25_000_000)), "1 ms is the least");
        assert_eq!(short("1000 100000\n"), None);
        assert_eq!(short("5000 15000\n"), None, "it is short");
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
    #[test]
    fn a_quota_that_is_held_already_is_not_written_again() {
        let directory = fake(&[("cpu.max", "20000 100000\n")]);
        let path = directory.path().join("cpu.max");
        let mut group = Group::to_lend(directory.path()).unwrap();
        group.write(10_000_000).unwrap();
        group.write(20_000_000).unwrap();
        std::fs::write(&path, "30000 100000\n").unwrap();
        group.restore().unwrap();
        drop(group);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "30000 100000\n", "what somebody else has set");
    }

    #[test]
    fn a_quota_that_could_not_be_put_back_is_put_back_later() {
        let directory = fake(&[("cpu.max", "20000 100000\n")]);
        let path = directory.path().join("cpu.max");
        let mut group = Group::to_lend(directory.path()).unwrap();
        group.write(10_000_000).unwrap();
        // One that cannot be written.
        let writable = std::mem::replace(&mut group.file, File::open(&path).unwrap());
        assert!(group.restore().is_err());
        group.file = writable;
        drop(group);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "20000 100000\n");
    }

    #[test]
    fn quotas_that_cannot_be_lent_of_are_refused() {
        for (files, says) in [
            ([("cpu.max", "1999 100000\n"), ("cpu.max.burst", "0\n")], "make the period longer"),
            ([("cpu.max", "20000 100000\n"), ("cpu.max.burst", "1\n")], "write 0 to cpu.max.burst"),
        ] {
            let directory = fake(&files);
            let error = Group::to_lend(directory.path()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            Group::open(directory.path()).unwrap();
        }
        let v1 =
            [("cpu.cfs_quota_us", "20000\n"), ("cpu.cfs_period_us", "100000\n"), ("cpu.cfs_burst_us", "5\n")];
        assert!(Group::to_lend(fake(&v1).path()).is_err());
        Group::to_lend(fake(&[("cpu.max", "2000 100000\n"), ("cpu.max.burst", "0\n")]).path()).unwrap();
    }

    #[test]
    fn who_only_looks_does_not_open_it_for_writing() {
        let directory = fake(&[("cpu.max", "20000 100000\n")]);
        let mut group = Group::open(directory.path()).unwrap();
        assert!(group.write(10_000_000).is_err());
    }
}
