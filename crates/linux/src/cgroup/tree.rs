//! A tree of quota groups, and the threads in it.
//!
//! Invariants: the tree remembers for every thread and process it moved in where that came from, and moves it back on
//! release and when the tree ends. Before it moves a thread it reads the thread's current group, so it never touches
//! another thread that has since got the same tid. A thread started by an assigned thread inherits its group, and moves
//! to the tree's base when the tree ends.
//!
//! Errors of all functions here: [`Error::NotPermitted`], [`Error::Gone`] if the process or thread has ended, and [`Error::Io`]
//! if the kernel refuses, for instance a quota.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{Cgroups, DIRECTORY_PREFIX, Quota, Version, remove_tree};
use crate::{Error, Result};

/// The most groups of one tree.
pub const MAX_GROUPS: usize = 1024;
/// The longest name of a tree or label of a group, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

const WAY_OUT: &str =
    "run as root, or in a cgroup delegated to you (systemd-run --user --scope -p Delegate=yes)";
const WAY_OUT_EXISTS: &str = "choose another name, or remove what an earlier run left behind (sweep_stale)";
const WAY_OUT_QUOTA: &str = "run as root; a group may not get more than the group above it";
const WAY_OUT_ASSIGN: &str =
    "run as root; with CONFIG_RT_GROUP_SCHED, a group without cpu.rt_runtime_us takes no real-time thread";

/// Names a group of one [`QuotaTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(usize);

/// A directory of quota groups. Dropping it moves all threads back and removes the directories.
#[derive(Debug)]
pub struct QuotaTree {
    cgroups: Cgroups,
    /// The tree's own directory. Guarding it with a warden also guards the groups in it.
    pub directory: PathBuf,
    groups: Vec<PathBuf>,
    /// The directory each assigned thread came from.
    threads: BTreeMap<i32, PathBuf>,
    /// The directory each adopted process came from; v2 only.
    processes: BTreeMap<i32, PathBuf>,
    removed: bool,
}

impl Cgroups {
    /// The path of the tree that [`create`](Cgroups::create) makes for this name.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.base.join(format!("{DIRECTORY_PREFIX}{name}"))
    }

    /// Makes the directory `reprieve-<name>` for quota groups.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the name has 1 to [`MAX_NAME_BYTES`] characters of a-z, 0-9 and `-`;
    /// [`Error::Io`] if it exists.
    pub fn create(&self, name: &str) -> Result<QuotaTree> {
        check_name("quota tree name", name)?;
        let directory = self.path_of(name);
        if self.version == Version::V2 {
            self.enable_cpu_below(&self.base)?;
        }
        make_dir(self, &directory)?;
        let tree = QuotaTree {
            cgroups: self.clone(),
            directory,
            groups: Vec::new(),
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            removed: false,
        };
        if self.version == Version::V2 {
            self.enable_cpu_below(&tree.directory)?;
        }
        Ok(tree)
    }

    /// Enables the cpu controller for the children of `directory`, unless it is already enabled.
    fn enable_cpu_below(&self, directory: &Path) -> Result<()> {
        let file = directory.join("cgroup.subtree_control");
        let enabled = self.fs.read(&file).map_err(|e| Error::io("read", &file, e, WAY_OUT))?;
        if enabled.split_ascii_whitespace().any(|name| name == "cpu") {
            return Ok(());
        }
        self.fs.write(&file, "+cpu").map_err(|e| Error::io("write", &file, e, WAY_OUT))
    }
}

impl QuotaTree {
    /// Makes a group whose threads share `quota`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad label or too many groups; [`Error::Io`] if the label is in use.
    pub fn quota_group(&mut self, label: &str, quota: Quota) -> Result<GroupId> {
        check_name("quota group label", label)?;
        if self.groups.len() >= MAX_GROUPS {
            return Err(Error::invalid("number of quota groups", label, "at most 1024 in one tree"));
        }
        let directory = self.directory.join(label);
        make_dir(&self.cgroups, &directory)?;
        self.groups.push(directory.clone());
        let group = GroupId(self.groups.len() - 1);
        if self.cgroups.version == Version::V2 {
            self.write(&directory.join("cgroup.type"), "threaded", WAY_OUT)?;
        }
        self.set_quota(group, quota)?;
        Ok(group)
    }

    /// Changes a group's quota.
    ///
    /// v1 has two files, and refuses a group a larger share than the group above it has. So the write that lowers the
    /// share comes first, and between the two writes the share never exceeds both the old and the new one.
    pub fn set_quota(&mut self, group: GroupId, quota: Quota) -> Result<()> {
        let directory = self.group(group)?;
        let (quota_us, period_us) = (quota.quota_us(), quota.period_us());
        self.set_limit(&directory, quota_us, period_us)?;
        self.set_burst(&directory, quota.burst_us())
    }

    /// Kernels before 5.14 know no bursts: they are asked for one only if there shall be one.
    fn set_burst(&self, directory: &Path, burst_us: u64) -> Result<()> {
        let name = if self.cgroups.version == Version::V2 { "cpu.max.burst" } else { "cpu.cfs_burst_us" };
        let file = directory.join(name);
        if burst_us == 0 && self.cgroups.fs.read(&file).map_or(true, |text| text.trim() == "0") {
            return Ok(());
        }
        self.write(&file, &burst_us.to_string(), "bursts need Linux 5.14; leave burst_ms out")
    }

    fn set_limit(&self, directory: &Path, quota_us: u64, period_us: u64) -> Result<()> {
        if self.cgroups.version == Version::V2 {
            let value = format!("{quota_us} {period_us}");
            return self.write(&directory.join("cpu.max"), &value, WAY_OUT_QUOTA);
        }
        let period_file = directory.join("cpu.cfs_period_us");
        let mut writes = [(&period_file, period_us), (&directory.join("cpu.cfs_quota_us"), quota_us)];
        if period_us < self.read_number(&period_file)? {
            writes.reverse();
        }
        writes.iter().try_for_each(|(file, value)| self.write(file, &value.to_string(), WAY_OUT_QUOTA))
    }

    /// Makes the threads of process `pid` assignable. v2 requires this and moves the process into the tree; on v1 it
    /// only checks that the process is alive.
    pub fn adopt_process(&mut self, pid: i32) -> Result<()> {
        let current = self.current_directory(pid)?;
        if self.cgroups.version == Version::V1 || current.starts_with(&self.directory) {
            return Ok(());
        }
        self.move_to(pid, &self.directory.join("cgroup.procs"))?;
        self.processes.insert(pid, current);
        Ok(())
    }

    /// Moves thread `tid` into a group, from outside or from another group of this tree.
    ///
    /// # Errors
    /// [`Error::Invalid`] on v2 if its process was not adopted.
    pub fn assign(&mut self, tid: i32, group: GroupId) -> Result<()> {
        let target = self.group(group)?.join(self.thread_file());
        let current = self.current_directory(tid)?;
        let is_inside = current.starts_with(&self.directory);
        if self.cgroups.version == Version::V2 && !is_inside {
            let expected = "adopt its process first (adopt_process)";
            return Err(Error::invalid("thread", tid.to_string(), expected));
        }
        self.move_to(tid, &target)?;
        if !is_inside {
            self.threads.insert(tid, current);
        }
        Ok(())
    }

    /// Moves thread `tid` back to where it came from. A thread that has ended or is not in this tree is left alone. In
    /// any case no quota of this tree applies to it afterwards.
    pub fn release(&mut self, tid: i32) -> Result<()> {
        let home = self.threads.get(&tid).cloned().unwrap_or_else(|| self.thread_home().to_path_buf());
        self.move_home(tid, &home, self.thread_file())?;
        self.threads.remove(&tid);
        Ok(())
    }

    /// Moves everything back and removes the directories, as dropping does, but reports errors.
    ///
    /// # Errors
    /// The first error, after trying everything.
    pub fn close(mut self) -> Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.removed, true) {
            return Ok(());
        }
        let tids: Vec<i32> = self.threads.keys().copied().collect();
        let mut result = Ok(());
        for tid in tids {
            result = result.and(self.release(tid));
        }
        for group in &self.groups {
            result = result.and(self.remove_directory(group));
        }
        // Processes move back once the groups are gone, together with all their threads.
        for (&pid, home) in &self.processes {
            result = result.and(self.move_home(pid, home, "cgroup.procs"));
        }
        result.and(self.remove_directory(&self.directory))
    }

    fn remove_directory(&self, directory: &Path) -> Result<()> {
        let way_out = "remove it by hand with rmdir, after its children";
        remove_tree(&*self.cgroups.fs, directory).map_err(|e| Error::io("remove", directory, e, way_out))
    }

    fn group(&self, group: GroupId) -> Result<PathBuf> {
        let unknown =
            || Error::invalid("quota group", group.0.to_string(), "use the id with the tree that made it");
        self.groups.get(group.0).cloned().ok_or_else(unknown)
    }

    fn thread_file(&self) -> &'static str {
        match self.cgroups.version {
            Version::V1 => "tasks",
            Version::V2 => "cgroup.threads",
        }
    }

    /// Where threads of unknown origin go. On v2 they must stay with their process.
    fn thread_home(&self) -> &Path {
        match self.cgroups.version {
            Version::V1 => &self.cgroups.base,
            Version::V2 => &self.directory,
        }
    }

    fn current_directory(&self, tid: i32) -> Result<PathBuf> {
        if tid <= 0 {
            return Err(Error::invalid("thread id", tid.to_string(), "use a positive id"));
        }
        self.cgroups.directory_of(&tid.to_string())
    }

    /// Moves a task out of the tree; if its home is gone, to the tree's base.
    fn move_home(&self, id: i32, home: &Path, file: &str) -> Result<()> {
        let moved = match self.current_directory(id) {
            Ok(current) if !current.starts_with(&self.directory) => return Ok(()),
            Ok(_) if self.cgroups.fs.read(&home.join(file)).is_ok() => self.move_to(id, &home.join(file)),
            Ok(_) => self.move_to(id, &self.cgroups.base.join(file)),
            Err(e) => Err(e),
        };
        moved.or_else(|e| if e.is_gone() { Ok(()) } else { Err(e) })
    }

    fn move_to(&self, id: i32, file: &Path) -> Result<()> {
        let moved = self.cgroups.fs.write(file, &id.to_string());
        moved.map_err(|e| Error::task("write a thread to", file, e, WAY_OUT_ASSIGN))
    }

    fn write(&self, file: &Path, value: &str, way_out: &'static str) -> Result<()> {
        self.cgroups.fs.write(file, value).map_err(|e| Error::io("write", file, e, way_out))
    }

    fn read_number(&self, file: &Path) -> Result<u64> {
        let text = self.cgroups.fs.read(file).map_err(|e| Error::io("read", file, e, WAY_OUT))?;
        text.trim().parse().map_err(|_| Error::malformed(file, "a number", &text))
    }
}

impl Drop for QuotaTree {
    fn drop(&mut self) {
        // A drop cannot report errors; `close` does.
        let _ = self.remove();
    }
}

fn make_dir(cgroups: &Cgroups, directory: &Path) -> Result<()> {
    cgroups.fs.make_dir(directory).map_err(|e| {
        let way_out = if e.kind() == io::ErrorKind::AlreadyExists { WAY_OUT_EXISTS } else { WAY_OUT };
        Error::io("make the cgroup", directory, e, way_out)
    })
}

fn check_name(what: &'static str, name: &str) -> Result<()> {
    let is_known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_known) {
        return Ok(());
    }
    Err(Error::invalid(what, name, "1 to 64 characters of a-z, 0-9 and -"))
}

#[cfg(test)]
mod tests;
