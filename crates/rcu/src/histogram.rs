//! A log-linear histogram of durations, of fixed size. Many threads record to it without a lock.
//!
//! Each value below 16 has its own bucket. Above that, every power of two is split into 16 buckets, so that a bucket
//! is at most 1/16 as wide as its values. The idea is that of HdrHistogram.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// Values of 2^44 ns (4.9 hours) and above share the last bucket.
const TOP_BITS: u32 = 44;
const BUCKETS: usize = (TOP_BITS - SUB_BITS + 1) as usize * SUB;

/// Counts of durations in nanoseconds, shared by threads.
pub(crate) struct Recorder {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Recorder {
    pub(crate) const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }

    /// Counts one duration. All accesses are Relaxed: a snapshot may be inconsistent between fields, never within one.
    pub(crate) fn record(&self, ns: u64) {
        self.buckets[index(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        let sum_ns = self.sum_ns.load(Ordering::Relaxed);
        Histogram { counts, sum_ns, max_ns: self.max_ns.load(Ordering::Relaxed) }
    }
}

fn index(ns: u64) -> usize {
    let top = 63 - (ns | SUB as u64).leading_zeros();
    let shift = top - SUB_BITS;
    let bucket = (shift as usize + usize::from(ns >= SUB as u64)) * SUB + (ns >> shift) as usize % SUB;
    bucket.min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    (((SUB + bucket % SUB + 1) as u64) << shift) - 1
}

/// A distribution of durations in nanoseconds, as it was when the snapshot was taken.
#[derive(Clone, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    sum_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest duration, exact; 0 when nothing was recorded.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The average, exact; 0 when nothing was recorded.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// The duration that a share `q` (0.0 to 1.0) of all durations does not exceed. At most 1/16 too large; 0 when
    /// nothing was recorded.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = (q * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_ns(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("mean_ns", &self.mean_ns())
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("p99_ns", &self.quantile_ns(0.99))
            .field("max_ns", &self.max_ns)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_once() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(index(upper_ns(bucket)), bucket);
            assert_eq!(index(upper_ns(bucket) + 1), bucket + 1);
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_a_sixteenth() {
        let recorder = Recorder::new();
        (1..=10_000u64).for_each(|v| recorder.record(v * 100));
        let seen = recorder.snapshot();
        assert_eq!((seen.count(), seen.max_ns()), (10_000, 1_000_000));
        assert_eq!(seen.mean_ns(), 500_050.0);
        for (q, exact) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let found = seen.quantile_ns(q);
            assert!((exact..=exact + exact / 16).contains(&found), "q {q}: {found}");
        }
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let none = Recorder::new().snapshot();
        assert_eq!((none.count(), none.quantile_ns(0.5), none.max_ns()), (0, 0, 0));
        assert_eq!(none.mean_ns(), 0.0);
    }
}
