//! What the CPUs of the tests' guest do, and the random numbers that they do it by.

/// Random numbers of the tests (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// Never for 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }
}

/// What the CPUs do: each rate is "once in so many steps", never for 0.
#[derive(Clone, Debug, Default)]
pub struct Style {
    pub calls: u64,
    /// Callbacks of a call.
    pub burst: u64,
    pub switches: u64,
    pub voluntary: u64,
    /// From user mode to the kernel and back.
    pub crossings: u64,
    /// Into idle and out of it.
    pub idling: u64,
    /// A stretch of kernel code that cannot switch begins, or ends.
    pub readers: u64,
    pub deschedules: u64,
    /// Longest time descheduled.
    pub away_ns: u64,
    /// Longest time from the kthread's waking to its running.
    pub kthread_delay_ns: u64,
    /// Where the kthread is woken; anywhere if nowhere.
    pub kthread_on: Option<usize>,
    pub expedited: u64,
    /// Moments whose grace period is polled.
    pub asks: u64,
    pub barriers: u64,
    /// Ticks of neighbouring CPUs are apart by this.
    pub skew_ns: u64,
}
