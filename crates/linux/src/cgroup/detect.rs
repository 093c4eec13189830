//! Finds the cpu controller: its cgroup version, its mount point, and the directory for new groups.
//!
//! `mountinfo` is parsed by hand because procfs-core 0.18 leaves the kernel's escapes (`\040` for a space) in paths.
//! Source: proc_pid_mountinfo(5), cgroups(7) (`/proc/PID/cgroup`), cgroup_namespaces(7).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fs::{ControlFs, RealFs};
use crate::proc::ProcRoot;
use crate::{Error, Result};

const WAY_OUT_MISSING: &str = "mount one: mount -t cgroup -o cpu none DIR, or a cgroup2 whose \
                               cgroup.controllers lists cpu (in a container, start it with a private cgroup \
                               namespace and a writable cgroup mount)";

const WAY_OUT_HIDDEN: &str = "run in the cgroup namespace of the host, or mount the whole hierarchy";

/// The cgroup version that the cpu controller belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller; threads can move anywhere.
    V1,
    /// One hierarchy for all controllers; threads can move within threaded subtrees.
    V2,
}

/// The cpu controller of this machine.
#[derive(Clone, Debug)]
pub struct Cgroups {
    /// The cgroup version.
    pub version: Version,
    /// The directory for new trees.
    pub base: PathBuf,
    pub(super) mount_point: PathBuf,
    /// The part of the hierarchy that the mount shows: `/`, or a part of it in containers.
    mount_root: PathBuf,
    pub(super) proc_root: ProcRoot,
    pub(super) fs: Arc<dyn ControlFs>,
}

impl Cgroups {
    /// Finds the cpu controller from `mountinfo` and `cgroup` of this process. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Missing`] if no mounted hierarchy has the cpu controller; [`Error::Malformed`].
    pub fn detect(proc_root: &ProcRoot) -> Result<Cgroups> {
        Cgroups::detect_on(proc_root, Arc::new(RealFs))
    }

    pub(super) fn detect_on(proc_root: &ProcRoot, fs: Arc<dyn ControlFs>) -> Result<Cgroups> {
        let mountinfo = proc_root.read_system("self/mountinfo")?;
        let mounts = || mountinfo.lines().filter_map(Mount::parse);
        let has_cpu = |mount: &Mount| {
            let controllers = fs.read(&mount.point.join("cgroup.controllers")).unwrap_or_default();
            controllers.split_ascii_whitespace().any(|name| name == "cpu")
        };
        let v1 = mounts().find(Mount::is_v1_cpu).map(|mount| (Version::V1, mount));
        let found = v1.or_else(|| mounts().find(|m| m.is_v2 && has_cpu(m)).map(|m| (Version::V2, m)));
        let Some((version, mount)) = found else {
            let (what, path) = ("cgroup hierarchy with the cpu controller", proc_root.join("self/mountinfo"));
            return Err(Error::Missing { what, path, way_out: WAY_OUT_MISSING });
        };
        let mut cgroups = Cgroups {
            version,
            base: mount.point.clone(),
            mount_point: mount.point,
            mount_root: mount.root,
            proc_root: proc_root.clone(),
            fs,
        };
        let own = cgroups.directory_of("self")?;
        cgroups.base = match version {
            Version::V1 => own,
            Version::V2 => cgroups.nearest_with_cpu_below(own),
        };
        Ok(cgroups)
    }

    /// The directory in the cpu hierarchy that holds `thread`, a tid or "self".
    pub(crate) fn directory_of(&self, thread: &str) -> Result<PathBuf> {
        let relative = format!("{thread}/cgroup");
        let text = self.proc_root.read_task(&relative)?;
        let path = self.proc_root.join(&relative);
        match text.lines().find_map(|line| cgroup_of_line(line, self.version)) {
            Some(cgroup) => self.visible(cgroup).ok_or(Error::Missing {
                what: "access to the cpu cgroup of the thread",
                path,
                way_out: WAY_OUT_HIDDEN,
            }),
            None => Err(Error::malformed(path, "a line for the cpu hierarchy", &text)),
        }
    }

    /// Where `path` of the hierarchy appears below the mount point; `None` if the mount does not show it.
    fn visible(&self, path: &str) -> Option<PathBuf> {
        let below = Path::new(path).strip_prefix(&self.mount_root).ok()?;
        let inside = below.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        inside.then(|| join_nonempty(&self.mount_point, below))
    }

    /// The nearest ancestor of `own` that enables the cpu controller for its children, or else the mount point.
    fn nearest_with_cpu_below(&self, own: PathBuf) -> PathBuf {
        let enables_cpu = |directory: &&Path| {
            let enabled = self.fs.read(&directory.join("cgroup.subtree_control")).unwrap_or_default();
            enabled.split_ascii_whitespace().any(|name| name == "cpu")
        };
        let within = own.ancestors().take_while(|directory| directory.starts_with(&self.mount_point));
        within.skip(1).find(enables_cpu).unwrap_or(&self.mount_point).to_path_buf()
    }
}

/// Joins two paths; unlike `join` it adds no trailing slash if the second is empty.
fn join_nonempty(directory: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { directory.to_path_buf() } else { directory.join(below) }
}

/// The path in a line `id:controllers:path` of `/proc/PID/cgroup`, if the line is for the cpu hierarchy.
fn cgroup_of_line(line: &str, version: Version) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let matches = match version {
        Version::V1 => controllers.split(',').any(|name| name == "cpu"),
        Version::V2 => id == "0" && controllers.is_empty(),
    };
    // The kernel marks a cgroup that was removed while it still had a zombie.
    (matches && path.starts_with('/')).then(|| path.strip_suffix(" (deleted)").unwrap_or(path))
}

/// The relevant parts of a line of `mountinfo`: `31 23 0:28 ROOT POINT options [tags] - TYPE SOURCE SUPER_OPTIONS`.
struct Mount {
    root: PathBuf,
    point: PathBuf,
    is_v1: bool,
    is_v2: bool,
    super_options: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Mount> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut file_system = file_system.split(' ');
        let kind = file_system.next()?;
        Some(Mount {
            root: unescape(mount.next()?),
            point: unescape(mount.next()?),
            is_v1: kind == "cgroup",
            is_v2: kind == "cgroup2",
            super_options: file_system.nth(1).unwrap_or_default().to_string(),
        })
    }

    fn is_v1_cpu(&self) -> bool {
        self.is_v1 && self.super_options.split(',').any(|option| option == "cpu")
    }
}

/// Decodes the kernel's escapes for space, tab, newline and backslash.
fn unescape(field: &str) -> PathBuf {
    let with = |text: String, (code, character)| text.replace(code, character);
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    PathBuf::from(codes.into_iter().fold(field.to_string(), with))
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeHost;
    use super::*;

    #[test]
    fn v1_also_when_mounted_together_with_cpuacct() {
        for options in ["rw,cpu", "rw,cpu,cpuacct", "rw,cpuacct,cpu"] {
            let host = FakeHost::new();
            host.mount("cgroup", "rw,cpuset", "cpuset").mount("cgroup", options, "cpu dir");
            host.own_cgroups("5:cpu,cpuacct:/user/me\n3:cpuset:/x\n0::/y\n");
            let cgroups = host.detect().unwrap();
            assert_eq!(cgroups.version, Version::V1);
            assert_eq!(cgroups.base, host.path("cpu dir/user/me"));
        }
    }

    #[test]
    fn cpuset_and_cpuacct_are_not_cpu() {
        let host = FakeHost::new();
        host.mount("cgroup", "rw,cpuset", "a").mount("cgroup", "rw,cpuacct", "b");
        host.own_cgroups("1:cpuset:/\n");
        assert!(matches!(host.detect(), Err(Error::Missing { .. })));
    }

    #[test]
    fn v2_only_with_the_cpu_controller() {
        let host = FakeHost::new();
        host.mount("cgroup2", "rw", "u").own_cgroups("0::/\n");
        host.put("u/cgroup.controllers", "hugetlb\n");
        assert!(host.detect().unwrap_err().to_string().contains("mount -t cgroup"));
        host.put("u/cgroup.controllers", "cpuset cpu io\n");
        assert_eq!(host.detect().unwrap().version, Version::V2);
    }

    #[test]
    fn v2_base_is_the_nearest_ancestor_that_enables_cpu_for_its_children() {
        let host = FakeHost::new();
        host.mount("cgroup2", "rw", "u").own_cgroups("0::/user.slice/session.scope\n");
        host.put("u/cgroup.controllers", "cpu\n").put("u/user.slice/cgroup.subtree_control", "memory\n");
        assert_eq!(host.detect().unwrap().base, host.path("u"));
        host.put("u/user.slice/cgroup.subtree_control", "cpu memory\n");
        assert_eq!(host.detect().unwrap().base, host.path("u/user.slice"));
        // The own cgroup is never the base: its processes must not compete with groups below it.
        host.put("u/user.slice/session.scope/cgroup.subtree_control", "cpu\n");
        assert_eq!(host.detect().unwrap().base, host.path("u/user.slice"));
    }

    #[test]
    fn a_mount_that_shows_a_part_of_the_hierarchy() {
        let host = FakeHost::new();
        host.mount_part("cgroup", "rw,cpu", "/docker/abc", "cpu");
        host.own_cgroups("5:cpu:/docker/abc/app\n");
        assert_eq!(host.detect().unwrap().base, host.path("cpu/app"));
        for hidden in ["/elsewhere", "/docker/abc/../x", "/docker/abcd"] {
            host.own_cgroups(&format!("5:cpu:{hidden}\n"));
            assert!(host.detect().unwrap_err().to_string().contains("namespace"), "{hidden}");
        }
    }
}
