//! Removes what is still registered: tasks' bindings and lent quotas first, then processes, then the cgroups they were in, then
//! directories.
//!
//! Invariants: a failure does not keep the rest from being tried; every wait is bounded. The right process is killed:
//! its pidfd is opened *before* its start time is read, so if the time is the registered one, that process already
//! existed when the pidfd was opened, and the pidfd refers to it. Source: pidfd_open(2).

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::line::Guarded;
use crate::cgroup::{RealFs, remove_tree};
use crate::migrate::{Doubtful, Roots, StateFile};
use crate::proc::ProcRoot;

/// How long all killed processes together may take to exit. Freeing a guest's memory takes a while.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// Attempts to remove a directory: another process may still be writing into it.
const DIR_ATTEMPTS: usize = 20;
/// Types of cgroup file systems, v1 and v2 (include/uapi/linux/magic.h).
const CGROUP_MAGIC: [u64; 2] = [0x27_e0eb, 0x6367_7270];
/// Pause between two attempts.
const DIR_PAUSE: Duration = Duration::from_millis(50);

/// Removes everything in `guarded`.
pub(super) fn remove_all(guarded: &BTreeSet<Guarded>, root: &ProcRoot) {
    let roots = Roots { proc: root.clone(), ..Roots::default() };
    for object in guarded {
        if let Guarded::Quota { path, quota_us, period_us } = object {
            let _ = put_quota_back(path, *quota_us, *period_us);
        }
        // A mask that cannot be restored stays in the file, for the next start or `--restore`.
        if let Guarded::Masks(path) = object {
            let _ = StateFile::restore_at(path, &roots, Doubtful::Leave);
        }
    }
    let killed: Vec<OwnedFd> = guarded.iter().filter_map(|object| kill(object, root)).collect();
    wait_for_exit(&killed, KILL_WAIT);
    // The set has cgroups before directories.
    for object in guarded {
        match object {
            // If this fails (no permission, or new tasks keep arriving), the next run's sweep finds the cgroup.
            Guarded::Cgroup(path) => drop(remove_tree(&RealFs, path)),
            Guarded::Dir(path) => drop(remove_dir(path)),
            Guarded::Process { .. } | Guarded::Masks(_) | Guarded::Quota { .. } => {}
        }
    }
}

/// Kills a guarded process, if it is still the same one. Returns its pidfd, which becomes readable when it has exited.
fn kill(object: &Guarded, root: &ProcRoot) -> Option<OwnedFd> {
    let Guarded::Process { pid, start_ticks } = object else { return None };
    let pidfd = rustix::process::pidfd_open(Pid::from_raw(*pid)?, PidfdFlags::empty()).ok()?;
    if root.start_time_ticks(*pid).ok()? != *start_ticks {
        return None;
    }
    rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).ok()?;
    Some(pidfd)
}

/// Waits at most `limit` until all processes have exited.
pub(super) fn wait_for_exit(pidfds: &[OwnedFd], limit: Duration) {
    let deadline = Instant::now() + limit;
    for pidfd in pidfds {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout)) {
                Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
                _ => break,
            }
        }
    }
}

/// Puts a quota back, as the warden does. Nothing for another object, and for a group that was removed.
///
/// # Errors
/// [`Error::NotPermitted`](crate::Error::NotPermitted), [`Error::Io`](crate::Error::Io).
pub fn put_back(object: &Guarded) -> crate::Result<()> {
    let Guarded::Quota { path, quota_us, period_us } = object else { return Ok(()) };
    match put_quota_back(path, *quota_us, *period_us) {
        Err(e) if !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
            Err(crate::Error::io("write a quota to", path, e, "write the first one by hand"))
        }
        _ => Ok(()),
    }
}

/// Puts a quota back if the file holds a lower one of the same period. Whoever lends time of a quota lowers it and keeps its
/// period, so any other quota was set by somebody else, or was put back already.
///
/// # Errors
/// As [`put_back`]; and if the file is there and cannot be read.
pub(crate) fn put_back_if_lowered(object: &Guarded) -> crate::Result<()> {
    let Guarded::Quota { path, quota_us, period_us } = object else { return Ok(()) };
    match held(path) {
        Ok(Some((held_us, held_period_us))) if held_us < *quota_us && held_period_us == *period_us => {
            put_back(object)
        }
        Ok(_) => Ok(()),
        // The group was removed.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(()),
        Err(e) => Err(crate::Error::io("read", path, e, "write the first quota by hand")),
    }
}

/// The quota that a file holds, and its period, in us. `None` for a group without a quota.
fn held(path: &Path) -> io::Result<Option<(u64, u64)>> {
    let mut text = std::fs::read_to_string(path)?;
    if !path.ends_with("cpu.max") {
        text.push_str(&std::fs::read_to_string(path.with_file_name("cpu.cfs_period_us"))?);
    }
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Ok(numbers.next().flatten().zip(numbers.next().flatten()))
}

/// Writes a quota to a file of a cgroup file system, and to no other file.
fn put_quota_back(path: &Path, quota_us: u64, period_us: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if !CGROUP_MAGIC.contains(&(rustix::fs::fstatfs(&file)?.f_type as u64)) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let text = match path.ends_with("cpu.max") {
        true => format!("{quota_us} {period_us}"),
        false => quota_us.to_string(),
    };
    file.write_all(text.as_bytes())
}

fn remove_dir(path: &Path) -> io::Result<()> {
    for attempt in 1..=DIR_ATTEMPTS {
        match std::fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(e) if attempt == DIR_ATTEMPTS => return Err(e),
            Err(_) => std::thread::sleep(DIR_PAUSE),
        }
    }
    unreachable!("the last attempt returns")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_with_another_start_time_is_left_alone() {
        let root = ProcRoot::default();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let Ok(Guarded::Process { pid, start_ticks }) = Guarded::process(&root, child.id() as i32) else {
            panic!("the child has no start time");
        };
        let other = Guarded::Process { pid, start_ticks: start_ticks + 1 };
        remove_all(&BTreeSet::from([other]), &root);
        assert!(child.try_wait().unwrap().is_none());
        remove_all(&BTreeSet::from([Guarded::Process { pid, start_ticks }]), &root);
        assert!(child.try_wait().unwrap().is_some());
    }

    #[test]
    fn a_quota_goes_to_no_file_of_another_file_system() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("cpu.max");
        std::fs::write(&path, "kept").unwrap();
        let object = Guarded::Quota { path: path.clone(), quota_us: 20_000, period_us: 100_000 };
        assert!(put_back(&object).is_err());
        put_back(&Guarded::Quota { path: outer.path().join("gone/cpu.max"), quota_us: 1, period_us: 1 })
            .unwrap();
        remove_all(&BTreeSet::from([object]), &ProcRoot::default());
        assert_eq!(std::fs::read_to_string(path).unwrap(), "kept");
    }

    #[test]
    fn only_a_lower_quota_of_the_same_period_is_put_back() {
        let outer = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(outer.path().join(name), text).unwrap();
        // The attempt shows as an error, since this is no cgroup's file.
        let is_tried = |name: &str| {
            let path = outer.path().join(name);
            put_back_if_lowered(&Guarded::Quota { path, quota_us: 20_000, period_us: 100_000 }).is_err()
        };
        for (text, expected) in [
            ("19999 100000\n", true),
            ("20000 100000\n", false),
            ("30000 100000\n", false),
            ("19999 200000\n", false),
            ("max 100000\n", false),
            ("", false),
        ] {
            put("cpu.max", text);
            assert_eq!(is_tried("cpu.max"), expected, "{text}");
        }
        for (quota, period, expected) in
            [("1000", "100000", true), ("1000", "50000", false), ("-1", "100000", false)]
        {
            put("cpu.cfs_quota_us", &format!("{quota}\n"));
            put("cpu.cfs_period_us", &format!("{period}\n"));
            assert_eq!(is_tried("cpu.cfs_quota_us"), expected, "{quota} {period}");
        }
        std::fs::remove_file(outer.path().join("cpu.max")).unwrap();
        assert!(!is_tried("cpu.max"), "the group was removed");
        std::fs::create_dir(outer.path().join("cpu.max")).unwrap();
        assert!(is_tried("cpu.max"), "a file that cannot be read is no proof that all is well");
    }

    #[test]
    fn directories_go_and_links_are_not_followed() {
        let outer = tempfile::tempdir().unwrap();
        let (ours, foreign) = (outer.path().join("reprieve-x"), outer.path().join("foreign"));
        std::fs::create_dir_all(ours.join("deep")).unwrap();
        std::fs::create_dir(&foreign).unwrap();
        std::fs::write(foreign.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&foreign, ours.join("deep/link")).unwrap();
        let missing = Guarded::Dir(outer.path().join("reprieve-missing"));
        remove_all(&BTreeSet::from([Guarded::Dir(ours.clone()), missing]), &ProcRoot::default());
        assert!(!ours.exists() && foreign.join("file").exists());
    }
}
