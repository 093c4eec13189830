//! How long the quotas of a process's cgroups have kept it from running.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Cgroups, Version};
use crate::proc::ProcRoot;

/// Throttling of this process's cgroup and of those above it, since they were made, ns, of those that tell.
pub(crate) fn throttled_ns(root: &ProcRoot) -> BTreeMap<PathBuf, u64> {
    let Ok(cgroups) = Cgroups::detect(root) else { return BTreeMap::new() };
    let Ok(own) = cgroups.directory_of("self") else { return BTreeMap::new() };
    let within = own.ancestors().take_while(|directory| directory.starts_with(&cgroups.mount_point));
    within.filter_map(|directory| Some((directory.into(), of_one(&cgroups, directory)?))).collect()
}

fn of_one(cgroups: &Cgroups, directory: &Path) -> Option<u64> {
    let text = cgroups.fs.read(&directory.join("cpu.stat")).ok()?;
    let (name, unit_ns) = match cgroups.version {
        Version::V1 => ("throttled_time ", 1),
        Version::V2 => ("throttled_usec ", 1000),
    };
    let value: u64 = text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()?;
    Some(value.saturating_mul(unit_ns))
}
