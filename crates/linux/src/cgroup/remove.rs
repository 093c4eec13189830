//! Removes a tree of groups without killing their tasks.
//!
//! Invariants: no task is killed; every loop is bounded; a directory that is already gone counts as removed. Tasks move
//! to the nearest ancestor that accepts them: on v2, a directory that enables controllers for its children accepts no
//! processes, unless it is the root.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::fs::ControlFs;

/// Attempts to empty and remove a directory. Tasks may fork into it meanwhile, and an exiting task leaves its cgroup a
/// moment after it is no longer listed.
const REMOVE_ATTEMPTS: usize = 200;
/// Pause between two attempts, since v1 has no event for "empty". The pauses for one directory take at most 1 s.
const REMOVE_PAUSE: Duration = Duration::from_millis(5);
/// The most levels of directories below the one that is removed. Trees made here have one.
const MAX_DEPTH: usize = 4;

/// Moves the tasks of `directory` and its children up, then removes the children and the directory.
pub(crate) fn remove_tree(fs: &dyn ControlFs, directory: &Path) -> io::Result<()> {
    remove_level(fs, directory, MAX_DEPTH)
}

fn remove_level(fs: &dyn ControlFs, directory: &Path, depth: usize) -> io::Result<()> {
    let children = match fs.children(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        children => children?,
    };
    if depth == 0 && !children.is_empty() {
        return Err(io::Error::other("the tree has more levels than reprieve makes"));
    }
    for child in children {
        remove_level(fs, &child, depth - 1)?;
    }
    remove_one(fs, directory)
}

/// Empties and removes one directory without children.
fn remove_one(fs: &dyn ControlFs, directory: &Path) -> io::Result<()> {
    for attempt in 1..=REMOVE_ATTEMPTS {
        match fs.remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.raw_os_error() != Some(libc::EBUSY) || attempt == REMOVE_ATTEMPTS => return Err(e),
            Err(_) => {}
        }
        move_tasks_up(fs, directory);
        if attempt > 1 {
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
    unreachable!("the last attempt returns")
}

/// Moves all tasks of a directory up. If one cannot be moved, the next attempt to remove the directory fails.
fn move_tasks_up(fs: &dyn ControlFs, directory: &Path) {
    for file in ["tasks", "cgroup.threads", "cgroup.procs"] {
        // In a threaded group, `cgroup.procs` cannot be read.
        let tasks = fs.read(&directory.join(file)).unwrap_or_default();
        for task in tasks.split_ascii_whitespace() {
            let targets = directory.ancestors().skip(1).map(|above| above.join(file));
            // A task that has ended (ESRCH) need not move any more.
            let _ = targets.take_while(|target| fs.read(target).is_ok()).find(|target| {
                fs.write(target, task).map_or_else(|e| e.raw_os_error() == Some(libc::ESRCH), |()| true)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::super::fake::FakeHost;
    use super::*;

    #[test]
    fn tasks_move_up_and_directories_go() {
        let host = FakeHost::with(Version::V1);
        for directory in ["m/own/reprieve-x", "m/own/reprieve-x/g"] {
            host.fs.make_dir(&host.path(directory)).unwrap();
        }
        host.put("m/own/reprieve-x/g/tasks", "11\n12\n").put("m/own/reprieve-x/tasks", "13\n");
        remove_tree(&*host.fs, &host.path("m/own/reprieve-x")).unwrap();
        assert!(!host.path("m/own/reprieve-x").exists());
        assert_eq!(host.fs.read(&host.path("m/own/tasks")).unwrap(), "13\n11\n12\n");
    }

    #[test]
    fn a_busy_directory_is_tried_again_a_bounded_number_of_times() {
        let host = FakeHost::with(Version::V1);
        let directory = host.path("m/own/reprieve-x");
        host.fs.make_dir(&directory).unwrap();
        host.refuse("rmdir", libc::EBUSY, 3);
        remove_tree(&*host.fs, &directory).unwrap();
        host.fs.make_dir(&directory).unwrap();
        host.refuse("rmdir", libc::EBUSY, usize::MAX);
        let error = remove_tree(&*host.fs, &directory).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn a_parent_that_refuses_is_skipped() {
        let host = FakeHost::with(Version::V2);
        let directory = host.path("m/own/reprieve-x");
        host.fs.make_dir(&directory).unwrap();
        host.put("m/own/reprieve-x/cgroup.procs", "11\n");
        host.refuse("write m/own/cgroup.procs", libc::EBUSY, usize::MAX);
        remove_tree(&*host.fs, &directory).unwrap();
        assert_eq!(host.fs.read(&host.path("m/cgroup.procs")).unwrap(), "11\n");
    }

    #[test]
    fn a_missing_directory_counts_as_removed() {
        let host = FakeHost::with(Version::V1);
        remove_tree(&*host.fs, &host.path("m/own/reprieve-none")).unwrap();
    }
}
