//! Which CPUs are there, and which of them a task's cpuset lets it have.
//!
//! sched_getaffinity(2) names only CPUs that are active, so a mask read by it forgets those that are offline; `Cpus_allowed_list`
//! of `/proc/PID/status` has them. A mask that is the whole of a task's cpuset is nobody's wish: it grows and shrinks with it.
//! Source: sched_getaffinity(2), cpuset(7); the kernel's Documentation/admin-guide/cputopology.rst,
//! admin-guide/cgroup-v2.rst (`cpuset.cpus.effective`) and admin-guide/cgroup-v1/cpusets.rst.

use std::path::{Path, PathBuf};

use reprieve_policy::cpus::CpuSet;

use super::ProcRoot;

/// The CPUs of this machine, from a `/sys` that is handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysCpus(PathBuf);

impl Default for SysCpus {
    fn default() -> Self {
        SysCpus("/sys".into())
    }
}

impl SysCpus {
    /// Below a `/sys` elsewhere.
    pub fn new(sys: impl Into<PathBuf>) -> SysCpus {
        SysCpus(sys.into())
    }

    /// The `/sys`.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// CPUs that are online; all where the kernel does not say, since then it cannot take any offline.
    pub fn online(&self) -> CpuSet {
        self.list("devices/system/cpu/online").unwrap_or_else(all)
    }

    /// CPUs that may ever come online; all where the kernel does not say.
    pub fn possible(&self) -> CpuSet {
        self.list("devices/system/cpu/possible").unwrap_or_else(all)
    }

    /// The CPUs online that the cpuset of task `tid` of process `pid` has; all online ones without cpusets.
    pub fn cpuset_of(&self, root: &ProcRoot, pid: i32, tid: i32) -> CpuSet {
        let path = root.read_task(&format!("{pid}/task/{tid}/cpuset")).unwrap_or_default();
        let online = self.online();
        // A path out of another cgroup namespace leads nowhere, and out of this hierarchy.
        let inside = Path::new(path.trim()).strip_prefix("/").ok().filter(|path| !path.starts_with(".."));
        let cpus = inside.and_then(|path| {
            let old = self.list_at(&self.0.join("fs/cgroup/cpuset").join(path).join("cpuset.effective_cpus"));
            old.or_else(|| self.unified(path))
        });
        cpus.map_or(online, |cpus| cpus.and(&online))
    }

    /// Of cgroup v2: that of the nearest ancestor with the controller.
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
    fn what_the_kernel_does_not_say_is_everything() {
        let none = SysCpus::new("/nonexistent");
        assert_eq!((none.online(), none.possible()), (all(), all()));
        assert_eq!(none.cpuset_of(&ProcRoot::new("/nonexistent"), 5, 5), all());
    }

    #[test]
    fn a_cpuset_of_either_version_is_found_and_cut_to_what_is_online() {
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
            "the parent's, where a child has no controller"
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
