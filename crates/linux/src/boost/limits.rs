//! Finds the groups whose quota limits a VM's vCPUs.
//!
//! The search begins with a thread's own group. It goes up to the parent as long as the group is one of libvirt's
//! divisions of a single VM (`vcpu0`, `emulator`, `libvirt`). Groups further up may hold other VMs, so time lent to
//! them might not reach this VM.

use std::path::{Path, PathBuf};

use super::{Group, Limited, owner};
use crate::Result;
use crate::cgroup::Cgroups;
use crate::proc::ProcRoot;

/// For each of a VM's vCPU threads, the nearest group with a quota. vCPUs without a quota are left out. `tids` are the
/// threads in the order of the vCPUs.
///
/// # Errors
/// No cgroup hierarchy has the cpu controller; a thread has ended; a group is not this VM's alone, or its quota is one that
/// cannot be lent of.
pub fn limits(root: &ProcRoot, pid: i32, tids: &[i32]) -> Result<Vec<Limited>> {
    let cgroups = Cgroups::detect(root)?;
    let mut limits: Vec<Limited> = Vec::new();
    for (vcpu, tid) in tids.iter().enumerate() {
        let own = cgroups.directory_of(&format!("{pid}/task/{tid}"))?;
        let Some(directory) = nearest(&own) else { continue };
        match limits.iter_mut().find(|limited| limited.directory == directory) {
            Some(limited) => limited.vcpus.push(vcpu),
            None => limits.push(Limited { directory, vcpus: vec![vcpu] }),
        }
    }
    owner::check(root, pid, &limits)?;
    limits.iter().try_for_each(|limited| Group::open(&limited.directory)?.check())?;
    Ok(limits)
}

fn nearest(own: &Path) -> Option<PathBuf> {
    let mut directory = own;
    loop {
        if has_quota(directory) {
            return Some(directory.to_path_buf());
        }
        let name = directory.file_name()?.to_str()?;
        let is_division = name == "libvirt" || name == "emulator" || name.starts_with("vcpu");
        directory = directory.parent().filter(|_| is_division)?;
    }
}

fn has_quota(directory: &Path) -> bool {
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    let quota = read("cpu.max").or_else(|| read("cpu.cfs_quota_us"));
    quota.is_some_and(|text| {
        text.split_ascii_whitespace().next().is_some_and(|word| word.parse::<u64>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_quota_within_one_vm_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |directory: &str, text: &str| {
            let directory = root.path().join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("cpu.max"), text).unwrap();
        };
        put("machine.slice", "50000 100000\n");
        put("machine.slice/web.scope", "max 100000\n");
        put("machine.slice/web.scope/libvirt/vcpu0", "20000 100000\n");
        put("machine.slice/web.scope/libvirt/vcpu1", "max 100000\n");
        let of = |directory: &str| nearest(&root.path().join(directory));
        let vcpu0 = "machine.slice/web.scope/libvirt/vcpu0";
        assert_eq!(of(vcpu0), Some(root.path().join(vcpu0)));
        assert_eq!(of("machine.slice/web.scope/libvirt/vcpu1"), None, "the slice has other VMs");
        put("machine.slice/web.scope", "80000 100000\n");
        let scope = root.path().join("machine.slice/web.scope");
        assert_eq!(of("machine.slice/web.scope/libvirt/vcpu1"), Some(scope));
    }

    #[test]
    fn quotas_of_cgroup_v1_are_read() {
        let root = tempfile::tempdir().unwrap();
        for (text, has) in [("-1\n", false), ("20000\n", true)] {
            std::fs::write(root.path().join("cpu.cfs_quota_us"), text).unwrap();
            assert_eq!(has_quota(root.path()), has);
        }
    }
}
