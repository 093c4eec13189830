//! A profile describes a VM while nothing disturbs it. It is JSON with a version, and nothing in it is trusted.

use serde::{Deserialize, Serialize};

use crate::scenario::{BadScenario, Guest, HostModel, Result, limits};
use crate::units::SECOND_NS;

/// Version of the profile's format.
pub const VERSION: u32 = 1;
/// Largest profile file, bytes.
pub const FILE_BYTES: u64 = 1 << 20;
/// Most kinds of deferred frees.
const ENTRIES: usize = 4_096;
/// Most notes on values that could not be measured.
const NOTES: usize = 64;
/// Most frees per second. No machine does more.
const RATE_PER_S: f64 = 1e9;
/// Largest object, bytes. The largest block of Linux's buddy allocator on x86-64 has 4 MiB, and larger objects consist
/// of several.
const OBJECT_BYTES: u64 = 64 << 20;
/// Longest grace period, ns. A guest with a longer one hangs.
const GRACE_PERIOD_NS: u64 = 3_600 * SECOND_NS;

/// Describes a VM while nothing disturbs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The [`VERSION`] with which the profile was written.
    pub profile_version: u32,
    /// Where and how the profile was made.
    #[serde(default)]
    pub source: String,
    /// The VM, with the keys that a scenario's `guest` has: `vcpus`, `memory_mib`, `hz`, `kernel`, `speed` and others.
    pub guest: Guest,
    /// The host that the VM is to run on, with the keys that a scenario's `host` has.
    #[serde(default)]
    pub host: HostModel,
    /// What the VM frees after grace periods, by cache if that is known.
    pub deferred_frees: Vec<DeferredFrees>,
    /// The VM's grace periods.
    pub grace_periods: GracePeriods,
    /// Time in the kernel, as a share of the vCPUs' total time, 0 to 1.
    pub kernel_share: f64,
    /// Idle time, as a share of the vCPUs' total time, 0 to 1.
    pub idle_share: f64,
    /// How the vCPUs were descheduled while the profile was made, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descheduled: Option<Descheduled>,
    /// Values that could not be measured, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Objects of one kind that are freed after a grace period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeferredFrees {
    /// The slab cache, or the subsystem that frees the objects.
    pub cache: String,
    /// Objects per second, over all vCPUs.
    pub per_s: f64,
    /// Size of an object, in bytes.
    pub bytes: u64,
}

/// Grace periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GracePeriods {
    /// Mean duration, ns.
    pub mean_ns: u64,
    /// 99th percentile of durations, ns.
    pub p99_ns: u64,
}

/// How vCPUs were descheduled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descheduled {
    /// How often per second each vCPU was descheduled.
    pub per_s: f64,
    /// Median duration, ns.
    pub p50_ns: u64,
    /// 99th percentile of durations, ns.
    pub p99_ns: u64,
    /// Longest duration, ns.
    pub max_ns: u64,
}

impl Profile {
    /// Reads and checks a profile. The version is checked before anything else.
    ///
    /// # Errors
    /// The key at fault, and the problem with it.
    pub fn from_json(text: &str) -> Result<Profile> {
        #[derive(Deserialize)]
        struct Version {
            profile_version: u32,
        }
        let shape = |error: serde_json::Error| BadScenario::new("profile", error.to_string());
        let Version { profile_version } = serde_json::from_str(text).map_err(shape)?;
        if profile_version != VERSION {
            let problem =
                format!("is {profile_version}, this program reads {VERSION}; make the profile again");
            return Err(BadScenario::new("profile_version", problem));
        }
        let reader = &mut serde_json::Deserializer::from_str(text);
        let profile: Profile = serde_path_to_error::deserialize(reader)
            .map_err(|error| BadScenario::new(error.path().to_string(), error.inner().to_string()))?;
        profile.check()?;
        Ok(profile)
    }

    /// The profile as JSON, for a file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every type of a profile has a JSON form") + "\n"
    }

    /// Objects freed per second, and their bytes.
    pub fn rate(&self) -> (f64, f64) {
        let add = |(number, bytes): (f64, f64), one: &DeferredFrees| {
            (number + one.per_s, bytes + one.per_s * one.bytes as f64)
        };
        self.deferred_frees.iter().fold((0.0, 0.0), add)
    }

    /// Refuses values that no VM has. The guest and the host are checked as in a scenario.
    fn check(&self) -> Result {
        within("deferred_frees", self.deferred_frees.len() as f64, 1.0, ENTRIES as f64, "entries")?;
        within("missing", self.missing.len() as f64, 0.0, NOTES as f64, "notes")?;
        within("source", self.source.len() as f64, 0.0, limits::TEXT_BYTES as f64, "bytes")?;
        for note in &self.missing {
            within("missing", note.len() as f64, 0.0, limits::TEXT_BYTES as f64, "bytes")?;
        }
        for (index, one) in self.deferred_frees.iter().enumerate() {
            let key = |key: &str| format!("deferred_frees[{index}].{key}");
            within(&key("cache"), one.cache.len() as f64, 1.0, limits::NAME_BYTES as f64, "bytes")?;
            within(&key("bytes"), one.bytes as f64, 1.0, OBJECT_BYTES as f64, "bytes")?;
            if one.per_s == 0.0 {
                return Err(BadScenario::new(key("per_s"), "is 0; leave out what is never freed"));
            }
            within(&key("per_s"), one.per_s, f64::MIN_POSITIVE, RATE_PER_S, "objects a second")?;
        }
        let longest = GRACE_PERIOD_NS as f64;
        within("grace_periods.mean_ns", self.grace_periods.mean_ns as f64, 1.0, longest, "ns")?;
        within("grace_periods.p99_ns", self.grace_periods.p99_ns as f64, 1.0, longest, "ns")?;
        within("kernel_share", self.kernel_share, 0.0, 1.0, "of the time")?;
        within("idle_share", self.idle_share, 0.0, 1.0, "of the time")?;
        let both = self.kernel_share + self.idle_share;
        // A little more than 1 is allowed, because both shares come from clocks that count ticks.
        within("kernel_share", both, 0.0, 1.001, "with idle_share")?;
        match self.descheduled {
            Some(descheduled) => {
                within("descheduled.per_s", descheduled.per_s, 0.0, RATE_PER_S, "times a second")
            }
            None => Ok(()),
        }
    }
}

/// Checks that a value is within bounds. NaN never is.
fn within(key: &str, value: f64, low: f64, high: f64, unit: &str) -> Result {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(BadScenario::new(key, format!("{value} {unit} are not within {low} to {high}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"profile_version":1,"guest":{"vcpus":2,"memory_mib":256},
        "deferred_frees":[{"cache":"dentry","per_s":1000.0,"bytes":192},{"cache":"filp","per_s":3000.0,"bytes":256}],
        "grace_periods":{"mean_ns":4000000,"p99_ns":8000000},"kernel_share":0.5,"idle_share":0.2}"#;

    fn refusal(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        Profile::from_json(&TEXT.replace(from, to)).unwrap_err().to_string()
    }

    #[test]
    fn a_profile_survives_its_file_and_knows_its_rate() {
        let profile = Profile::from_json(TEXT).unwrap();
        assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
        assert_eq!(profile.rate(), (4_000.0, 192_000.0 + 768_000.0));
        assert_eq!((profile.guest.hz, profile.guest.speed), (250, 1.0), "as in a scenario");
    }

    #[test]
    fn what_no_vm_has_is_refused_with_its_key() {
        for (from, to, says) in [
            ("\"profile_version\":1", "\"profile_version\":2", "profile_version: is 2, this program reads 1"),
            ("1000.0", "0", "deferred_frees[0].per_s: is 0; leave out"),
            ("3000.0", "-1", "deferred_frees[1].per_s: -1 objects a second are not within"),
            ("3000.0", "2e9", "deferred_frees[1].per_s: 2000000000 objects"),
            ("3000.0", "1e999", "deferred_frees[1].per_s: number out of range"),
            ("3000.0", "NaN", "profile: expected value"),
            ("\"bytes\":192", "\"bytes\":0", "deferred_frees[0].bytes: 0 bytes are not within 1 to 67108864"),
            ("\"bytes\":192", "\"bytes\":1e6", "deferred_frees[0].bytes: invalid type"),
            ("\"dentry\"", "\"\"", "deferred_frees[0].cache: 0 bytes"),
            ("0.5", "0.9", "kernel_share: 1.1 with idle_share"),
            ("\"mean_ns\":4000000", "\"mean_ns\":0", "grace_periods.mean_ns: 0 ns"),
            ("\"vcpus\":2", "\"vcpu\":2", "guest.vcpu: unknown field"),
            (
                "{\"cache\":\"dentry\",\"per_s\":1000.0,\"bytes\":192},{\"cache\":\"filp\",\"per_s\":3000.0,\"bytes\":256}",
                "",
                "deferred_frees: 0 entries are not within 1 to 4096",
            ),
        ] {
            let refused = refusal(from, to);
            assert!(refused.starts_with(says), "{to}: {refused}");
        }
    }
}
