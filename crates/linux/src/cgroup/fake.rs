//! A fake host for tests: a `/proc`, and a directory of cgroup mounts that imitates the kernel in a few points.
//!
//! It logs every change in order, keeps each task in the last group it was written to, and refuses to remove a group
//! with tasks or children. A test can make it refuse other operations too.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::fs::{ControlFs, RealFs};
use super::{Cgroups, Version};
use crate::Result;
use crate::proc::fake::FakeProc;

pub(super) struct FakeHost {
    pub(super) proc: FakeProc,
    pub(super) fs: Arc<FakeFs>,
    mountinfo: Mutex<String>,
}

#[derive(Debug)]
pub(super) struct FakeFs {
    root: PathBuf,
    log: Mutex<Vec<String>>,
    refuse: Mutex<Option<(String, i32, usize)>>,
}

const MEMBER_FILES: [&str; 3] = ["tasks", "cgroup.procs", "cgroup.threads"];

impl FakeHost {
    pub(super) fn new() -> FakeHost {
        let proc = FakeProc::new();
        let root = proc.root.join("mounts");
        std::fs::create_dir(&root).unwrap();
        let fs = FakeFs { root, log: Mutex::default(), refuse: Mutex::default() };
        FakeHost { proc, fs: Arc::new(fs), mountinfo: Mutex::default() }
    }

    /// A host with the cpu controller mounted at `m`, and this process in its `/own`.
    pub(super) fn with(version: Version) -> FakeHost {
        let host = FakeHost::new();
        let (kind, options, own, members) = match version {
            Version::V1 => ("cgroup", "rw,cpu", "4:cpu:/own\n", ["tasks", "cgroup.procs"]),
            Version::V2 => ("cgroup2", "rw", "0::/own\n", ["cgroup.threads", "cgroup.procs"]),
        };
        host.mount(kind, options, "m").own_cgroups(own);
        if version == Version::V2 {
            host.put("m/cgroup.controllers", "cpu\n").put("m/cgroup.subtree_control", "");
        }
        for file in members {
            host.put(&format!("m/{file}"), "").put(&format!("m/own/{file}"), "");
        }
        host
    }

    pub(super) fn mount(&self, kind: &str, options: &str, at: &str) -> &FakeHost {
        self.mount_part(kind, options, "/", at)
    }

    pub(super) fn mount_part(&self, kind: &str, options: &str, root: &str, at: &str) -> &FakeHost {
        let point = self.path(at);
        std::fs::create_dir_all(&point).unwrap();
        let escaped = point.to_str().unwrap().replace(' ', "\\040");
        let mut mountinfo = self.mountinfo.lock().unwrap();
        mountinfo.push_str(&format!("32 31 0:29 {root} {escaped} rw shared:9 - {kind} none {options}\n"));
        self.proc.put("self/mountinfo", &mountinfo);
        self
    }

    pub(super) fn own_cgroups(&self, text: &str) -> &FakeHost {
        self.proc.put("self/cgroup", text);
        self
    }

    /// Makes `/proc` show thread `tid` in `group`.
    pub(super) fn thread(&self, tid: i32, group: &str) {
        self.proc.put(&format!("{tid}/cgroup"), &format!("4:cpu:{group}\n0::{group}\n"));
    }

    pub(super) fn put(&self, relative: &str, text: &str) -> &FakeHost {
        self.proc.put(&format!("mounts/{relative}"), text);
        self
    }

    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.fs.root.join(relative)
    }

    pub(super) fn detect(&self) -> Result<Cgroups> {
        Cgroups::detect_on(&self.proc.root, self.fs.clone())
    }

    /// The changes since the last call, in order.
    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.fs.log.lock().unwrap())
    }

    /// Makes the next `times` operations whose log line contains `pattern` fail with `errno`.
    pub(super) fn refuse(&self, pattern: &str, errno: i32, times: usize) {
        *self.fs.refuse.lock().unwrap() = Some((pattern.to_string(), errno, times));
    }
}

impl FakeFs {
    fn record(&self, verb: &str, path: &Path, value: &str) -> io::Result<()> {
        let line = format!("{verb} {} {value}", path.strip_prefix(&self.root).unwrap().display());
        let line = line.trim_end().to_string();
        if let Some((pattern, errno, times)) = &mut *self.refuse.lock().unwrap()
            && *times > 0
            && line.contains(pattern.as_str())
        {
            *times -= 1;
            return Err(io::Error::from_raw_os_error(*errno));
        }
        self.log.lock().unwrap().push(line);
        Ok(())
    }

    /// Removes a task from the group that holds it.
    fn take_out(&self, directory: &Path, task: &str) {
        for child in RealFs.children(directory).unwrap() {
            self.take_out(&child, task);
        }
        for file in MEMBER_FILES.map(|name| directory.join(name)) {
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            let rest: String = text.lines().filter(|t| *t != task).map(|t| format!("{t}\n")).collect();
            std::fs::write(&file, rest).unwrap();
        }
    }
}

impl ControlFs for FakeFs {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.record("mkdir", path, "")?;
        std::fs::create_dir(path)?;
        let is_v1 = std::fs::read_to_string(self.root.join("../self/cgroup"))?.contains(":cpu:");
        let files = match is_v1 {
            true => "tasks cgroup.procs cpu.cfs_quota_us cpu.cfs_period_us cpu.stat",
            false => "cgroup.procs cgroup.threads cgroup.type cgroup.subtree_control cpu.max cpu.stat",
        };
        files.split(' ').try_for_each(|name| std::fs::write(path.join(name), ""))?;
        if is_v1 { std::fs::write(path.join("cpu.cfs_period_us"), "100000\n") } else { Ok(()) }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let members = MEMBER_FILES.iter().filter_map(|name| std::fs::read_to_string(path.join(name)).ok());
        if members.map(|text| text.len()).sum::<usize>() > 0 || !self.children(path)?.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        self.record("rmdir", path, "")?;
        std::fs::remove_dir_all(path)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        self.record("write", path, value)?;
        if !MEMBER_FILES.iter().any(|name| path.ends_with(name)) {
            return RealFs.write(path, value);
        }
        self.take_out(&self.root, value);
        let text = self.read(path)?;
        std::fs::write(path, format!("{text}{value}\n"))
    }
}
