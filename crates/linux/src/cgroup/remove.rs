//! Removing a tree of groups whose tasks must live on.
//!
//! Invariants: no task is killed; every loop is bounded; a directory that is already gone is a success.
//! Tasks go to the nearest directory above that takes them: on v2 one that hands controllers down to its
//! children takes no processes, unless it is the root.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::fs::ControlFs;

/// How often emptying and removing a directory is tried. Tasks fork into it meanwhile, and a dying task
/// leaves it a moment after it stopped to be seen.
const REMOVE_ATTEMPTS: usize = 200;
/// Between two attempts: v1 has no event for "empty". All attempts together take at most 1 s.
const REMOVE_PAUSE: Duration = Duration::from_millis(5);
/// A tree has two levels; anything deeper was not made here.
const MAX_DEPTH: usize = 4;

/// Moves the tasks of `directory` and of its children upwards, then removes the children and it.
pub(crate) fn remove_tree(fs: &dyn ControlFs, directory: &Path) -> io::Result<()> {
    remove_level(fs, directory, MAX_DEPTH)
}

fn remove_level(fs: &dyn ControlFs, directory: &Path, depth: usize) -> io::Result<()> {
    let children = match fs.children(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        children => children?,
    };
    if depth == 0 && !children.is_empty() {
        return Err(io::Error::other("the tree is deeper than any made here"));
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

/// A task that cannot be moved shows in the next attempt to remove its directory.
fn move_tasks_up(fs: &dyn ControlFs, directory: &Path) {
    for file in ["tasks", "cgroup.threads", "cgroup.procs"] {
        // `cgroup.procs` of a threaded group refuses to be read.
        let tasks = fs.read(&directory.join(file)).unwrap_or_default();
        for task in tasks.split_ascii_whitespace() {
            let targets = directory.ancestors().skip(1).map(|above| above.join(file));
            // A task that has ended (ESRCH) needs no target any more.
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
    fn busy_is_tried_again_a_bounded_number_of_times() {
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
    fn what_is_not_there_is_removed() {
        let host = FakeHost::with(Version::V1);
        remove_tree(&*host.fs, &host.path("m/own/reprieve-none")).unwrap();
    }
}
