//! Tests a cpuset that narrows while its task is bound, with cgroup v1 or v2, whichever this machine has. The tests of
//! the vm crate also run this file in a guest, with v2.

#[path = "support/tasks.rs"]
mod tasks;

use std::path::{Path, PathBuf};

use reprieve_linux::migrate::Bound;
use reprieve_policy::cpus::CpuSet;
use tasks::{Sleeping, bind, open, restore, table, two_cpus};

/// A cpuset. Dropping it moves its tasks back and removes it.
struct Cpuset {
    path: PathBuf,
    /// The file that lists its tasks.
    tasks: &'static str,
}

impl Cpuset {
    /// A cpuset of one CPU; `None` if none can be made.
    fn of(cpu: usize) -> Option<Cpuset> {
        let (old, unified) = (Path::new("/sys/fs/cgroup/cpuset"), Path::new("/sys/fs/cgroup"));
        let (base, tasks) = if old.join("cpuset.mems").is_file() {
            (old, "tasks")
        } else if unified.join("cgroup.controllers").is_file() {
            (unified, "cgroup.procs")
        } else {
            return None;
        };
        let path = base.join(format!("reprieve-test-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let cpuset = Cpuset { path, tasks };
        if base == old {
            // A new cpuset of cgroup v1 has no memory nodes.
            let nodes = std::fs::read_to_string(base.join("cpuset.mems")).ok()?;
            std::fs::write(cpuset.path.join("cpuset.mems"), nodes.trim()).ok()?;
        }
        std::fs::write(cpuset.path.join("cpuset.cpus"), cpu.to_string()).ok()?;
        Some(cpuset)
    }

    fn put(&self, tid: i32) {
        std::fs::write(self.path.join(self.tasks), tid.to_string()).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let above = self.path.with_file_name(self.tasks);
        for tid in std::fs::read_to_string(self.path.join(self.tasks)).unwrap_or_default().lines() {
            let _ = std::fs::write(&above, tid);
        }
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[test]
fn a_cpuset_that_narrows_meanwhile_is_respected() {
    let Some(own) = two_cpus() else { return };
    let (one, other) = (own.iter().next().unwrap(), own.iter().nth(1).unwrap());
    let Some(cpuset) = Cpuset::of(other) else {
        eprintln!("skipped: no cpuset can be made");
        return;
    };
    let (task, folder) = (Sleeping::start(), tempfile::tempdir().unwrap());
    let table = table(open(folder.path()), &[task.tid()], own);
    assert_eq!(bind(&table, 0, Some(one)), Bound::Done);
    cpuset.put(task.tid());
    assert_eq!(task.mask(), CpuSet::of(other), "the kernel moves it into its cpuset");
    assert_eq!(bind(&table, 0, Some(one)), Bound::Same, "the table does not know yet");
    assert_eq!(bind(&table, 0, None), Bound::Foreign);
    drop(table);
    restore(&open(folder.path()));
    assert_eq!(task.mask(), CpuSet::of(other), "no wider than its cpuset");
    drop(cpuset);
    assert_eq!(task.mask(), own, "nor is it bound again when the cpuset grows");
}
