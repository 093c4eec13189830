//! Removes what is still registered: tasks' bindings and lent quotas first, then processes, then the cgroups they were in, then
//! directories.
//!
//! Invariants: a failure does not keep the rest from being tried; every wait is bounded. The right process is killed:
//! its pidfd is opened *before* its start time is read, so if the time is the registered one, that process already
//! existed when the pidfd was opened, and the pidfd refers to it. Source: pidfd_open(2).

use std::collections::BTreeSet;
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
/// Pause between two attempts.
const DIR_PAUSE: Duration = Duration::from_millis(50);

/// Removes everything in `guarded`.
pub(super) fn remove_all(guarded: &BTreeSet<Guarded>, root: &ProcRoot) {
    let roots = Roots { proc: root.clone(), ..Roots::default() };
    for object in guarded {
        match object {
            // A mask that cannot be restored stays in the file, for the next start or `--restore`.
            Guarded::Masks(path) => drop(StateFile::restore_at(path, &roots, Doubtful::Leave)),
            // A group that is gone needs no quota.
            Guarded::Quota { path, text } => drop(write(path, text)),
            _ => {}
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

/// Writes into a control file that exists.
fn write(path: &Path, text: &str) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
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
    fn a_quota_that_was_lent_is_put_back_and_a_group_that_is_gone_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let quota =
            |name: &str| Guarded::Quota { path: folder.path().join(name), text: "20000 100000".into() };
        std::fs::write(folder.path().join("cpu.max"), "01000 100000").unwrap();
        remove_all(&BTreeSet::from([quota("cpu.max"), quota("gone/cpu.max")]), &ProcRoot::default());
        assert_eq!(std::fs::read_to_string(folder.path().join("cpu.max")).unwrap(), "20000 100000");
        assert!(!folder.path().join("gone").exists());
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
