//! How long the quotas of a process's cgroups have kept it from running.

use std::path::Path;

use super::{Cgroups, Version};
use crate::proc::ProcRoot;

/// Throttling of this process's cgroup and of those above it, since they were made, ns: that of the one that was throttled
/// most, for a cgroup that is throttled within a throttled one must not count twice. `None` if none of them tells.
pub(crate) fn throttled_ns(root: &ProcRoot) -> Option<u64> {
    let cgroups = Cgroups::detect(root).ok()?;
    let own = cgroups.directory_of("self").ok()?;
    let within = own.ancestors().take_while(|directory| directory.starts_with(&cgroups.mount_point));
    within.filter_map(|directory| of_one(&cgroups, directory)).max()
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
