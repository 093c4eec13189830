//! Whose threads a group limits: what is lent to a group may be used by every thread in it and in the groups below, so all of
//! these must be of one VM's process.
//!
//! Invariant: the search is bounded, and a group that is too large to be looked through is refused.
//! Source: the kernel's admin-guide/cgroup-v1/cgroups.rst (`tasks`) and cgroup-v2.rst (`cgroup.threads`).

use std::path::{Path, PathBuf};

use super::Limited;
use crate::proc::ProcRoot;
use crate::{Error, Result};

/// Most groups below one, with itself.
const MAX_GROUPS: usize = 1024;
const WAY_OUT: &str = "run as root";

/// Checks that each of these groups holds threads of this process alone, and no other group of the list.
///
/// # Errors
/// [`Error::Invalid`] for a group that does not; [`Error::NotPermitted`], [`Error::Io`] if it cannot be read.
pub(super) fn check(root: &ProcRoot, pid: i32, limits: &[Limited]) -> Result<()> {
    for limited in limits {
        let directory = &limited.directory;
        let refused = |expected| Err(Error::invalid("cgroup", directory.display().to_string(), expected));
        if limits.iter().any(|other| other != limited && other.directory.starts_with(directory)) {
            return refused(
                "another group with a quota is in it or is the same: lending to both would count twice; set the quota in one place",
            );
        }
        if has_others(root, pid, directory)? {
            return refused(
                "it holds threads of other processes, which would use what is lent: give the vCPUs groups of their own, each \
                 with a quota (libvirt: cputune), and retry",
            );
        }
    }
    Ok(())
}

/// Whether a thread of another process is in the group or below it.
fn has_others(root: &ProcRoot, pid: i32, directory: &Path) -> Result<bool> {
    let mut left = vec![directory.to_path_buf()];
    let mut looked = 0;
    while let Some(directory) = left.pop() {
        looked += 1;
        if looked > MAX_GROUPS {
            let expected = "it has more than 1024 groups below it: give the vCPUs groups of their own";
            return Err(Error::invalid("cgroup", directory.display().to_string(), expected));
        }
        if threads(&directory)?.into_iter().any(|tid| !is_of(root, pid, tid)) {
            return Ok(true);
        }
        left.extend(below(&directory)?);
    }
    Ok(false)
}

/// The threads in a group itself.
fn threads(directory: &Path) -> Result<Vec<i32>> {
    let v1 = directory.join("tasks");
    let path = if v1.exists() { v1 } else { directory.join("cgroup.threads") };
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e, WAY_OUT))?;
    // Threads of another PID namespace are 0, and are of no known process.
    Ok(text.lines().map(|line| line.trim().parse().unwrap_or(0)).collect())
}

/// Whether a thread is one of this process, or has ended.
fn is_of(root: &ProcRoot, pid: i32, tid: i32) -> bool {
    let is_own = || root.join(format!("{pid}/task/{tid}")).exists();
    tid > 0 && (is_own() || !root.join(tid.to_string()).exists() || is_own())
}

fn below(directory: &Path) -> Result<Vec<PathBuf>> {
    let refused = |e| Error::io("read", directory, e, WAY_OUT);
    let entries = std::fs::read_dir(directory).map_err(refused)?.flatten();
    Ok(entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/proc` in which process 10 has the threads 10 and 11, and process 20 one.
    fn proc_root(folder: &Path) -> ProcRoot {
        for thread in ["10/task/10", "10/task/11", "11", "20/task/20"] {
            std::fs::create_dir_all(folder.join("proc").join(thread)).unwrap();
        }
        ProcRoot::new(folder.join("proc"))
    }

    fn put(folder: &Path, group: &str, name: &str, text: &str) -> Limited {
        let directory = folder.join(group);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(name), text).unwrap();
        Limited { directory, vcpus: vec![0] }
    }

    #[test]
    fn a_group_with_threads_of_another_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, root) = (folder.path(), proc_root(folder.path()));
        for name in ["tasks", "cgroup.threads"] {
            let group = put(folder, &format!("{name}/own"), name, "10\n11\n30\n");
            let groups = std::slice::from_ref(&group);
            check(&root, 10, groups).unwrap();
            put(folder, &format!("{name}/own/below"), name, "20\n");
            let error = check(&root, 10, groups).unwrap_err().to_string();
            assert!(error.contains("other processes") && error.contains("groups of their own"), "{error}");
            put(folder, &format!("{name}/own/below"), name, "");
            check(&root, 10, groups).unwrap();
            put(folder, &format!("{name}/own"), name, "10\n0\n");
            assert!(check(&root, 10, groups).is_err(), "a thread that this PID namespace does not show");
        }
    }

    #[test]
    fn a_group_that_holds_another_of_the_list_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = proc_root(folder.path());
        let outer = put(folder.path(), "vm", "tasks", "10\n");
        let inner = put(folder.path(), "vm/vcpu1", "tasks", "11\n");
        let beside = put(folder.path(), "vm2", "tasks", "");
        check(&root, 10, &[outer.clone(), beside]).unwrap();
        let error = check(&root, 10, &[inner, outer]).unwrap_err().to_string();
        assert!(error.contains("another group with a quota"), "{error}");
    }
}
