//! The machine's CPUs, and the CPUs of a task's cpuset.
//!
//! sched_getaffinity(2) reports only active CPUs, so a mask read that way loses those that are offline;
//! `Cpus_allowed_list` in `/proc/PID/status` has them. If a task's mask equals its whole cpuset, nobody has chosen it,
//! and it grows and shrinks with the cpuset. Source: sched_getaffinity(2), cpuset(7); the kernel's
//! Documentation/admin-guide/cputopology.rst, admin-guide/cgroup-v2.rst (`cpuset.cpus.effective`) and
//! admin-guide/cgroup-v1/cpusets.rst.

use std::path::{Path, PathBuf};

use reprieve_policy::cpus::CpuSet;

use super::ProcRoot;

/// Reads the CPUs of this machine from a given `/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysCpus(PathBuf);

impl Default for SysCpus {
    fn default() -> Self {
        SysCpus("/sys".into())
    }
}

impl SysCpus {
    /// Reads from another `/sys`.
    pub fn new(sys: impl Into<PathBuf>) -> SysCpus {
        SysCpus(sys.into())
    }

    /// The path of the `/sys`.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The CPUs that are online. If the kernel does not list them, it cannot take any offline, and this returns all.
    pub fn online(&self) -> CpuSet {
        self.list("devices/system/cpu/online").unwrap_or_else(all)
    }

    /// The CPUs that may ever come online; all, if the kernel does not list them.
    pub fn possible(&self) -> CpuSet {
        self.list("devices/system/cpu/possible").unwrap_or_else(all)
    }

    /// The online CPUs in the cpuset of task `tid` of process `pid`; all online CPUs, if there are no cpusets.
    pub fn cpuset_of(&self, root: &ProcRoot, pid: i32, tid: i32) -> CpuSet {
        let path = root.read_task(&format!("{pid}/task/{tid}/cpuset")).unwrap_or_default();
        let online = self.online();
        // A path that starts with `..` lies outside this cgroup namespace.
        let inside = Path::new(path.trim()).strip_prefix("/").ok().filter(|path| !path.starts_with(".."));
        let cpus = inside.and_then(|path| {
            let old = self.list_at(&self.0.join("fs/cgroup/cpuset").join(path).join("cpuset.effective_cpus"));
            old.or_else(|| self.unified(path))
        });
        cpus.map_or(online, |cpus| cpus.and(&online))
    }

    /// The cpuset in cgroup v2: that of the nearest ancestor with the controller.
    fn unified(&self, path: &Path) -> Option<CpuSet> {
        let base = self.0.join("fs/cgroup");
        path.ancestors().find_map(|path| self.list_at(&base.join(path).join("cpuset.cpus.effective")))
    }

    fn list(&self, relative: &str) -> Option<CpuSet> {
        self.list_at(&self.0.join(relative))
    }

    fn list_at(&self, path: &Path) -> Option<CpuSet> {
        super::read_bounded(path).ok()?.trim().parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
    }
}

fn all() -> CpuSet {
    CpuSet::first(reprieve_policy::cpus::MAX_CPUS)
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn without_lists_from_the_kernel_all_cpus_count() {
        let none = SysCpus::new("/nonexistent");
        assert_eq!((none.online(), none.possible()), (all(), all()));
        assert_eq!(none.cpuset_of(&ProcRoot::new("/nonexistent"), 5, 5), all());
    }

    #[test]
    fn a_cpuset_of_either_version_is_found_and_restricted_to_online_cpus() {
        let tree = FakeProc::new();
        tree.put("sys/devices/system/cpu/online", "0-2\n").put("sys/devices/system/cpu/possible", "0-7\n");
        tree.put("5/task/5/cpuset", "/a/b\n")
            .put("6/task/6/cpuset", "/old\n")
            .put("7/task/7/cpuset", "/../x\n");
        tree.put("sys/fs/cgroup/a/cpuset.cpus.effective", "1-3\n").put("sys/fs/cgroup/a/b/cgroup.procs", "");
        tree.put("sys/fs/cgroup/cpuset/old/cpuset.effective_cpus", "0,2\n");
        let sys = SysCpus::new(tree.root.path().join("sys"));
        assert_eq!((sys.online(), sys.possible()), (cpus("0-2"), cpus("0-7")));
        assert_eq!(
            sys.cpuset_of(&tree.root, 5, 5),
            cpus("1-2"),
            "the parent's, since the child has no controller"
        );
        assert_eq!(sys.cpuset_of(&tree.root, 6, 6), cpus("0,2"));
        for pid in [7, 8] {
            assert_eq!(sys.cpuset_of(&tree.root, pid, pid), cpus("0-2"), "{pid}");
        }
    }

    #[test]
    fn this_thread_runs_within_its_cpuset() {
        let (sys, root) = (SysCpus::default(), ProcRoot::default());
        let (pid, tid) = (std::process::id() as i32, crate::threads::own_tid());
        let whole = sys.cpuset_of(&root, pid, tid);
        assert!(crate::threads::affinity_set(tid).unwrap().is_subset(&whole), "{whole}");
        assert!(whole.is_subset(&sys.online()) && sys.online().is_subset(&sys.possible()));
    }
}
