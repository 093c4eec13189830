//! How often and how long a group was throttled: `cpu.stat`.
//!
//! v1 prints `throttled_time` in ns, v2 `throttled_usec` in us. The time is summed over CPUs, so for a group of several
//! threads it can exceed the time that passed.

/// Throttling of one quota group since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleStats {
    /// Periods in which the group had runnable threads.
    pub periods: u64,
    /// Periods in which it ran out of quota.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: u64,
}

impl ThrottleStats {
    /// Parses the text of `cpu.stat` of either version.
    pub(super) fn parse(text: &str) -> Option<ThrottleStats> {
        let field = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
        };
        let throttled_ns = field("throttled_time").or_else(|| field("throttled_usec")?.checked_mul(1_000))?;
        Some(ThrottleStats {
            periods: field("nr_periods")?,
            throttled_periods: field("nr_throttled")?,
            throttled_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions() {
        let expected = ThrottleStats { periods: 10, throttled_periods: 4, throttled_ns: 5_000 };
        let v1 = "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\nnr_bursts 0\nburst_time 0\n";
        let v2 =
            "usage_usec 9\nuser_usec 8\nsystem_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n";
        assert_eq!(ThrottleStats::parse(v1), Some(expected));
        assert_eq!(ThrottleStats::parse(v2), Some(expected));
        assert_eq!(ThrottleStats::parse("usage_usec 9\n"), None);
    }
}
