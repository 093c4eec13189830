//! A log-linear histogram of nanoseconds, exact below 2048 and within 1/1024 above (three decimal digits), up to 2^43 ns
//! (2.4 hours), where values saturate. The layout is that of HdrHistogram (hdrhistogram.org), whose own recording needs
//! exclusive access: here any thread may record, for some schemes free in readers, and a lock held by a preempted
//! reader would delay the next free.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

const SUB_BITS: u32 = 11;
const MAX_BITS: u32 = 43;
const HALF: u64 = 1 << (SUB_BITS - 1);
const BUCKETS: usize = (MAX_BITS - SUB_BITS + 2) as usize * HALF as usize;

/// Counts of values, each in nanoseconds.
#[derive(Debug)]
pub struct Histogram {
    counts: Box<[AtomicU64]>,
    count: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// Values below 2 * `HALF` are their own bucket; above, each doubling has `HALF` buckets.
fn bucket_of(value: u64) -> usize {
    let value = value.min((1 << MAX_BITS) - 1);
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(SUB_BITS);
    (u64::from(shift) * HALF + (value >> shift)) as usize
}

fn highest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / HALF).saturating_sub(1);
    ((bucket - shift * HALF + 1) << shift) - 1
}

impl Default for Histogram {
    /// A histogram without values.
    fn default() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU64::default()).collect(),
            count: AtomicU64::default(),
            sum_ns: AtomicU64::default(),
            max_ns: AtomicU64::default(),
        }
    }
}

impl Histogram {
    /// Adds a value.
    pub fn record(&self, value_ns: u64) {
        // Relaxed: the count orders them.
        self.counts[bucket_of(value_ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(value_ns, Relaxed);
        self.max_ns.fetch_max(value_ns, Relaxed);
        // Last, and release: pairs with the acquire in `count`, which thus counts only what is complete.
        self.count.fetch_add(1, Release);
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// The mean of the recorded values, exact; 0 when there are none.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_ns.load(Relaxed) as f64 / count as f64,
        }
    }

    /// The largest value; 0 when there are none.
    pub fn max(&self) -> u64 {
        self.max_ns.load(Relaxed)
    }

    /// The smallest bucket's highest value at or below which lies the share `quantile` (0 to 1) of the values, never
    /// above the recorded maximum; 0 when there are none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((quantile * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count.load(Relaxed);
            if seen >= rank {
                return highest_of(bucket).min(self.max());
            }
        }
        self.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn buckets_are_in_order_and_without_gaps() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(highest_of(bucket)), bucket);
            if bucket + 1 < BUCKETS {
                assert_eq!(bucket_of(highest_of(bucket) + 1), bucket + 1);
            }
        }
    }

    #[test]
    fn the_last_bucket_takes_what_is_beyond() {
        assert_eq!(bucket_of((1 << MAX_BITS) - 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn agrees_with_hdrhistogram() {
        let ours = Histogram::default();
        let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 42, 3).unwrap();
        let mut stream = Stream::new(3, 0);
        for _ in 0..10_000 {
            let shift = stream.below(40);
            let value = stream.draw() >> (24 + shift);
            ours.record(value);
            theirs.record(value).unwrap();
        }
        for quantile in [0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.9999, 1.0] {
            let expected = theirs.value_at_quantile(quantile).min(theirs.max());
            assert!(theirs.equivalent(ours.quantile(quantile), expected), "quantile {quantile}");
        }
        assert!(theirs.equivalent(ours.max(), theirs.max()));
        assert_eq!(ours.count(), 10_000);
    }

    #[test]
    fn mean_and_max_are_exact() {
        let histogram = Histogram::default();
        for value in [1, 2, 1_000_003] {
            histogram.record(value);
        }
        assert_eq!(histogram.mean(), 1_000_006.0 / 3.0);
        assert_eq!(
            (histogram.max(), histogram.quantile(1.0), histogram.quantile(0.5)),
            (1_000_003, 1_000_003, 2)
        );
    }

    #[test]
    fn empty_is_zero() {
        let histogram = Histogram::default();
        assert_eq!((histogram.mean(), histogram.max(), histogram.quantile(0.5)), (0.0, 0, 0));
    }
}
