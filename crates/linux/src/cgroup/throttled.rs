//! How long the quotas of a thread's cgroups have kept it from running.

use std::path::PathBuf;

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

/// A cgroup with a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its directory.
    pub directory: PathBuf,
    /// CPU time in each period, ns, over all CPUs.
    pub quota_ns: u64,
    /// The period, ns.
    pub period_ns: u64,
    /// Throttling since the group was made, ns, over all CPUs.
    pub throttled_ns: u64,
}

/// The quotas on a thread: of its own cgroup, then of those above it. Empty if there are none, or the thread has ended.
pub fn limits_of(root: &ProcRoot, pid: i32, tid: i32) -> Vec<Limit> {
    let Ok(cgroups) = Cgroups::detect(root) else { return Vec::new() };
    let Ok(own) = cgroups.directory_of(&format!("{pid}/task/{tid}")) else { return Vec::new() };
    let within = own.ancestors().take_while(|directory| directory.starts_with(&cgroups.mount_point));
    let limit = |directory: &std::path::Path| {
        let read = |name: &str| cgroups.fs.read(&directory.join(name)).ok();
        let max = match cgroups.version {
            Version::V1 => {
                format!("{} {}", read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
            }
            Version::V2 => read("cpu.max")?,
        };
        let (quota_ns, period_ns) = quota(&max)?;
        let throttled_ns = of(&read("cpu.stat")?, cgroups.version)?;
        Some(Limit { directory: directory.into(), quota_ns, period_ns, throttled_ns })
    };
    within.filter_map(limit).collect()
}

/// Quota and period, ns, of `200000 100000`; `None` for no quota: `max 100000`, or `-1 100000` of cgroup v1.
fn quota(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok()?.checked_mul(1000));
    Some((words.next()??, words.next()??))
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
    fn quotas_of_both_versions() {
        assert_eq!(quota("20000 100000\n"), Some((20_000_000, 100_000_000)));
        assert_eq!(quota("max 100000\n"), None);
        assert_eq!(quota("-1 100000"), None);
    }

    #[test]
    fn both_versions_are_in_ns() {
        assert_eq!(of("nr_periods 3\nthrottled_time 1234\n", Version::V1), Some(1234));
        assert_eq!(of("usage_usec 9\nthrottled_usec 7\n", Version::V2), Some(7000));
        assert_eq!(of("usage_usec 9\n", Version::V2), None);
    }
}
