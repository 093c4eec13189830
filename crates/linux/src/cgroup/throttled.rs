//! How long the quotas of a process's cgroups have kept it from running.

use super::{Cgroups, Version};
use crate::proc::{ProcRoot, Reread};

/// Reads the throttling of this process's cgroup and of those above it. Reads allocate nothing.
#[derive(Debug)]
pub(crate) struct Throttled {
    /// Their `cpu.stat`.
    files: Vec<Reread>,
    version: Version,
}

impl Throttled {
    /// Finds the cgroups that this process is in now; `None` if there are none with quotas.
    pub(crate) fn find(root: &ProcRoot) -> Option<Throttled> {
        let cgroups = Cgroups::detect(root).ok()?;
        let own = cgroups.directory_of("self").ok()?;
        let within = own.ancestors().take_while(|directory| directory.starts_with(&cgroups.mount_point));
        let files = within.map(|directory| Reread::open(&directory.join("cpu.stat"))).collect();
        Some(Throttled { files, version: cgroups.version })
    }

    /// Throttling of each since it was made, ns, appended to `each_ns` in a fixed order; 0 if one does not tell.
    pub(crate) fn read(&mut self, each_ns: &mut Vec<u64>) {
        let version = self.version;
        each_ns.extend(
            self.files.iter_mut().map(|file| file.read().and_then(|text| of(text, version)).unwrap_or(0)),
        );
    }
}

fn of(text: &str, version: Version) -> Option<u64> {
    let (name, unit_ns) = match version {
        Version::V1 => ("throttled_time ", 1),
        Version::V2 => ("throttled_usec ", 1000),
    };
    let value: u64 = text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()?;
    Some(value.saturating_mul(unit_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_in_ns() {
        assert_eq!(of("nr_periods 3\nthrottled_time 1234\n", Version::V1), Some(1234));
        assert_eq!(of("usage_usec 9\nthrottled_usec 7\n", Version::V2), Some(7000));
        assert_eq!(of("usage_usec 9\n", Version::V2), None);
    }
}
