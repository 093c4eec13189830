//! The CPU time a group may use per period.
//!
//! Invariant: every [`Quota`] is within the kernel's limits. The kernel takes microseconds here, so this module uses
//! them too. Source: kernel/sched/core.c, `tg_set_cfs_bandwidth` (min_cfs_quota_period = 1 ms, max_cfs_quota_period = 1
//! s).

use crate::{Error, Result};

/// The smallest quota the kernel accepts, us.
pub const MIN_QUOTA_US: u64 = 1_000;
/// The shortest period the kernel accepts, us.
pub const MIN_PERIOD_US: u64 = 1_000;
/// The longest period the kernel accepts, us.
pub const MAX_PERIOD_US: u64 = 1_000_000;
/// The largest quota accepted here, us: 4096 CPUs for the longest period.
const MAX_QUOTA_US: u64 = 4096 * MAX_PERIOD_US;

/// `quota_us` of CPU time in every `period_us`. More than the period means more than one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    quota_us: u64,
    period_us: u64,
    burst_us: u64,
}

impl Quota {
    /// A quota in us per period in us.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the kernel's limits.
    pub fn new(quota_us: u64, period_us: u64) -> Result<Quota> {
        if !(MIN_PERIOD_US..=MAX_PERIOD_US).contains(&period_us) {
            let expected = "choose a period from 1 ms (1000 us) to 1 s (1000000 us)";
            return Err(Error::invalid("quota period", format!("{period_us} us"), expected));
        }
        if !(MIN_QUOTA_US..=MAX_QUOTA_US).contains(&quota_us) {
            let expected =
                "the kernel accepts no less than 1 ms (1000 us) per period: make the period longer";
            return Err(Error::invalid("quota", format!("{quota_us} us per {period_us} us"), expected));
        }
        Ok(Quota { quota_us, period_us, burst_us: 0 })
    }

    /// The same quota, of which up to `burst_us` that was left unused may be used later.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than the quota.
    pub fn with_burst_us(self, burst_us: u64) -> Result<Quota> {
        if burst_us > self.quota_us {
            let expected = "the kernel accepts no more than the quota of a period";
            return Err(Error::invalid("burst", format!("{burst_us} us"), expected));
        }
        Ok(Quota { burst_us, ..self })
    }

    /// Unused CPU time that may be used later, us.
    pub fn burst_us(self) -> u64 {
        self.burst_us
    }

    /// A quota in percent of one CPU.
    ///
    /// # Errors
    /// As [`Quota::new`], and [`Error::Invalid`] for a percentage that is not a positive number.
    pub fn from_percent(percent: f64, period_us: u64) -> Result<Quota> {
        if !(percent.is_finite() && percent > 0.0) {
            return Err(Error::invalid("quota", format!("{percent} %"), "a positive percentage of one CPU"));
        }
        // If the float is too large, the cast saturates and `new` refuses it.
        Quota::new((percent / 100.0 * period_us as f64).round() as u64, period_us)
    }

    /// CPU time per period, us.
    pub fn quota_us(self) -> u64 {
        self.quota_us
    }

    /// The period, us.
    pub fn period_us(self) -> u64 {
        self.period_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_of_one_cpu() {
        assert_eq!(Quota::from_percent(20.0, 100_000).unwrap(), Quota::new(20_000, 100_000).unwrap());
        assert_eq!(Quota::from_percent(150.0, 10_000).unwrap().quota_us(), 15_000);
    }

    #[test]
    fn limits_of_the_kernel_on_both_sides() {
        for (quota_us, period_us) in [(1_000, 1_000), (1_000, 1_000_000), (MAX_QUOTA_US, 1_000)] {
            assert!(Quota::new(quota_us, period_us).is_ok());
        }
        for (quota_us, period_us) in
            [(999, 1_000), (1_000, 999), (1_000, 1_000_001), (0, 1_000), (MAX_QUOTA_US + 1, 1_000)]
        {
            assert!(matches!(Quota::new(quota_us, period_us), Err(Error::Invalid { .. })));
        }
    }

    #[test]
    fn no_more_is_saved_than_a_period_s_quota() {
        let quota = Quota::new(20_000, 100_000).unwrap();
        assert_eq!(quota.with_burst_us(20_000).unwrap().burst_us(), 20_000);
        assert!(quota.with_burst_us(20_001).is_err());
    }

    #[test]
    fn a_share_below_one_ms_says_what_to_do() {
        let error = Quota::from_percent(5.0, 10_000).unwrap_err();
        assert!(error.to_string().contains("make the period longer"));
        for percent in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(Quota::from_percent(percent, 100_000).is_err(), "{percent}");
        }
    }
}
