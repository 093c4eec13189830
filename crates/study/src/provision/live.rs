//! Makes a profile from what was measured in a running VM.
//!
//! What is known of deferred frees is the function that frees, and how many objects: sizes come from the slab caches that
//! well-known functions free into, or from the user. What is guessed is said.

use std::collections::BTreeMap;

use super::profile::{DeferredFrees, GracePeriods, Profile, VERSION};
use crate::scenario::{BadScenario, Guest, HostModel, Result};
use crate::statistics;

/// What was measured in a VM.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// For how long, seconds.
    pub seconds: f64,
    /// Objects that were freed, by the function that frees them.
    pub frees: Vec<(String, f64)>,
    /// Sizes that the user has given, by function, bytes.
    pub given_bytes: BTreeMap<String, u64>,
    /// The kernel's slab caches: name, objects in use, size of an object in bytes.
    pub slabs: Vec<(String, u64, u64)>,
    /// Durations of grace periods, ns.
    pub grace_periods_ns: Vec<u64>,
    /// Shares of the vCPUs' time: in the kernel, idle, and taken away by the host.
    pub shares: Shares,
    /// The VM.
    pub guest: Guest,
    /// Release of its kernel.
    pub release: String,
    /// What could not be measured.
    pub notes: Vec<String>,
}

/// Shares of time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// In the kernel, with interrupts.
    pub kernel: f64,
    /// Idle.
    pub idle: f64,
    /// Taken away by the host.
    pub steal: f64,
}

/// The size that is taken for objects of which nothing is known, bytes: that of a `filp`, the most common of them.
const UNKNOWN_BYTES: u64 = 256;
/// From this share of stolen time on, the VM was disturbed.
const STEAL: f64 = 0.01;
/// Functions that make up less than this share of all objects are put together, so that at most 50 are named.
const SMALL: f64 = 0.02;
/// The longest name of a function that is kept.
const NAME_CHARACTERS: usize = 100;
/// Callbacks that free nothing themselves: they wake a task that waits for a grace period, or queue work.
const WAITERS: [&str; 5] = [
    "rcu_work_rcufn",
    "wakeme_after_rcu",
    "rcu_barrier_callback",
    "rcu_sync_func",
    "percpu_ref_switch_to_atomic_rcu",
];
/// Callbacks of Linux 6.1 or 6.12, and the slab cache into which each frees.
const CACHES: [(&str, &str); 14] = [
    ("__d_free", "dentry"),
    ("__d_free_external", "dentry"),
    ("file_free_rcu", "filp"),
    ("put_cred_rcu", "cred_jar"),
    ("delayed_put_pid", "pid"),
    ("delayed_put_task_struct", "task_struct"),
    ("vm_area_free_rcu_cb", "vm_area_struct"),
    ("mt_free_rcu", "maple_node"),
    ("mt_free_walk", "maple_node"),
    ("radix_tree_node_rcu_free", "radix_tree_node"),
    ("avc_node_free", "avc_node"),
    ("dst_destroy_rcu", "ip_dst_cache"),
    ("epi_rcu_free", "eventpoll_epi"),
    ("delayed_free_vfsmnt", "mnt_cache"),
];
/// The callback of inodes, whatever file system's, and what the names of their caches have in common.
const INODES: (&str, &str) = ("i_callback", "inode");

impl Measured {
    /// The profile.
    ///
    /// # Errors
    /// Nothing was freed after a grace period, or no grace period ended.
    pub fn profile(mut self) -> Result<Profile> {
        let lacks = |key: &str, what: &str| {
            BadScenario::new(
                key,
                format!("no {what} in {:.0} s; watch for longer, while the VM works", self.seconds),
            )
        };
        let (nobody, never) = (
            lacks("deferred_frees", "object was freed"),
            lacks("grace_periods", "whole grace period was seen"),
        );
        let grace_periods = self.grace_periods().ok_or(never)?;
        let deferred_frees = self.deferred_frees();
        if deferred_frees.is_empty() {
            return Err(nobody);
        }
        if self.shares.steal > STEAL {
            self.notes.push(format!(
                "the host took {:.0} % of the CPU time away meanwhile; a profile should be made while nothing disturbs the VM",
                100.0 * self.shares.steal
            ));
        }
        let series = [("6.12", "6.12"), ("6.1", "")].into_iter().find(|(series, _)| {
            self.release
                .strip_prefix(series)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        if series.is_none() {
            self.notes.push(format!(
                "the simulator does not know the kernel {}; it uses 6.1 instead",
                self.release
            ));
        }
        let idle_share = self.shares.idle.clamp(0.0, 1.0);
        let profile = Profile {
            profile_version: VERSION,
            source: format!("a running VM, {:.0} s, Linux {}", self.seconds, self.release),
            guest: Guest { kernel: series.map_or("", |(_, kernel)| kernel).into(), ..self.guest },
            host: HostModel::default(),
            deferred_frees,
            grace_periods,
            kernel_share: self.shares.kernel.clamp(0.0, 1.0 - idle_share),
            idle_share,
            descheduled: None,
            missing: self.notes,
        };
        Profile::from_json(&profile.to_json())
    }

    fn grace_periods(&self) -> Option<GracePeriods> {
        let mut sorted = self.grace_periods_ns.clone();
        sorted.sort_unstable();
        let values: Vec<f64> = sorted.iter().map(|ns| *ns as f64).collect();
        let mean_ns = statistics::mean(&values)?.max(1.0) as u64;
        let p99_ns = sorted[(99 * sorted.len()).div_ceil(100) - 1].max(1);
        Some(GracePeriods { mean_ns, p99_ns })
    }

    /// By cache or function, the most objects first. Says which sizes are guessed.
    fn deferred_frees(&mut self) -> Vec<DeferredFrees> {
        let mut frees: BTreeMap<String, f64> = BTreeMap::new();
        for (function, objects) in self.frees.iter().filter(|(name, _)| !WAITERS.contains(&name.as_str())) {
            // A profile's names are short.
            let name = function.chars().take(NAME_CHARACTERS).collect();
            *frees.entry(name).or_default() += objects;
        }
        let all: f64 = frees.values().sum();
        let mut found: BTreeMap<(String, u64), f64> = BTreeMap::new();
        for (function, objects) in frees {
            let is_small = objects < all * SMALL;
            let (cache, bytes) = self.size(&function).unwrap_or_else(|| {
                let name = if is_small { "others".to_string() } else { function.clone() };
                if !is_small {
                    self.notes.push(format!(
                        "the size of what {function} frees ({:.0} objects a second) is not known, and taken as {UNKNOWN_BYTES} \
                         bytes; give it with --bytes {function}=BYTES",
                        objects / self.seconds
                    ));
                }
                (name, UNKNOWN_BYTES)
            });
            *found.entry((cache, bytes)).or_default() += objects;
        }
        let mut found: Vec<DeferredFrees> = found
            .into_iter()
            .map(|((cache, bytes), objects)| DeferredFrees { cache, per_s: objects / self.seconds, bytes })
            .filter(|one| one.per_s > 0.0)
            .collect();
        found.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
        found
    }

    /// The cache and the size of what a function frees.
    fn size(&self, function: &str) -> Option<(String, u64)> {
        if let Some(bytes) = self.given_bytes.get(function) {
            return Some((function.into(), *bytes));
        }
        if function == INODES.0 {
            let inodes =
                self.slabs.iter().filter(|(cache, objects, _)| cache.contains(INODES.1) && *objects > 0);
            let (objects, bytes) = inodes.fold((0, 0), |(count, sum), (_, objects, bytes)| {
                (count + objects, sum + objects.saturating_mul(*bytes))
            });
            return Some(("inodes".into(), bytes / Some(objects).filter(|objects| *objects > 0)?));
        }
        let (_, cache) = CACHES.into_iter().find(|(callback, _)| *callback == function)?;
        let (_, _, bytes) = self.slabs.iter().find(|(name, ..)| name == cache)?;
        Some((cache.into(), *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let slab = |cache: &str, objects, bytes| (cache.to_string(), objects, bytes);
        Measured {
            seconds: 10.0,
            frees: [
                ("file_free_rcu", 900.0),
                ("i_callback", 600.0),
                ("lab_free", 300.0),
                ("odd", 5.0),
                ("wakeme_after_rcu", 50.0),
            ]
            .map(|(function, objects)| (function.to_string(), objects))
            .into(),
            slabs: vec![
                slab("filp", 9, 256),
                slab("shmem_inode_cache", 30, 760),
                slab("proc_inode_cache", 10, 680),
            ],
            grace_periods_ns: vec![4_000_000, 8_000_000],
            shares: Shares { kernel: 0.25, idle: 0.5, steal: 0.0 },
            guest: Guest { vcpus: 4, ..Guest::default() },
            release: "6.12.48-cloud-amd64".into(),
            ..Measured::default()
        }
    }

    #[test]
    fn sizes_are_those_of_the_caches_that_functions_free_into() {
        let profile = measured().profile().unwrap();
        let free = |cache: &str, per_s, bytes| DeferredFrees { cache: cache.into(), per_s, bytes };
        assert_eq!(
            profile.deferred_frees,
            [
                free("filp", 90.0, 256),
                free("inodes", 60.0, 740),
                free("lab_free", 30.0, 256),
                free("others", 0.5, 256)
            ]
        );
        assert_eq!(profile.grace_periods, GracePeriods { mean_ns: 6_000_000, p99_ns: 8_000_000 });
        assert_eq!((profile.guest.kernel.as_str(), profile.guest.vcpus), ("6.12", 4));
        assert!(
            profile.missing.len() == 1 && profile.missing[0].contains("--bytes lab_free=BYTES"),
            "{:?}",
            profile.missing
        );
        let given = Measured { given_bytes: BTreeMap::from([("lab_free".into(), 1024)]), ..measured() };
        let profile = given.profile().unwrap();
        assert!(profile.missing.is_empty() && profile.deferred_frees[2] == free("lab_free", 30.0, 1024));
    }

    #[test]
    fn what_disturbed_the_vm_or_was_not_seen_is_said() {
        let shares = Shares { steal: 0.2, ..measured().shares };
        let missing = Measured { shares, release: "6.18.1".into(), ..measured() }.profile().unwrap().missing;
        assert!(missing.iter().any(|note| note.starts_with("the host took 20 %")), "{missing:?}");
        assert!(missing.iter().any(|note| note.contains("does not know the kernel 6.18.1")), "{missing:?}");
        let refused = |measured: Measured| measured.profile().unwrap_err().to_string();
        let none = Measured { grace_periods_ns: Vec::new(), ..measured() };
        assert!(refused(none).starts_with("grace_periods: no whole grace period was seen in 10 s"));
        let waits = vec![("wakeme_after_rcu".to_string(), 7.0)];
        assert!(
            refused(Measured { frees: waits, ..measured() })
                .starts_with("deferred_frees: no object was freed")
        );
    }
}
