//! How long objects waited between their retirement and their free, counted by powers of two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Ages of freed objects. Bucket `i` counts ages of `2^(i-1)` to `2^i - 1` ns, bucket 0 those of 0 ns.
pub struct Ages {
    start: Instant,
    buckets: [AtomicU64; 65],
}

impl Ages {
    pub fn new() -> Self {
        Self { start: Instant::now(), buckets: [const { AtomicU64::new(0) }; 65] }
    }

    /// Nanoseconds since `new`.
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Counts an object that was retired at `retired_ns`.
    pub fn freed(&self, retired_ns: u64) {
        let age_ns = self.now_ns().saturating_sub(retired_ns);
        self.buckets[64 - age_ns.leading_zeros() as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Buckets that are not empty: the upper bound of their ages in nanoseconds, and how many objects they count.
    pub fn histogram(&self) -> Vec<(u64, u64)> {
        let counts = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).enumerate();
        counts
            .filter(|&(_, n)| n > 0)
            .map(|(i, n)| (1u64.checked_shl(i as u32).unwrap_or(u64::MAX), n))
            .collect()
    }
}
