//! When membarrier's latency makes an adaptive domain change between membarrier and its readers' own fences: a
//! decision, without a clock or a call of its own.
//!
//! A vCPU that is descheduled does not make every call slow. One that may run 20 ms of every 100 ms answers at once
//! while it runs, so that one call of 80 ms stands among many quick ones. Hence slow calls are counted within a span
//! of time, not in a row. A fenced domain learns about membarrier from probes alone, and a writer waits for each: so a
//! slow probe is followed by a rest in proportion to it, and a domain returns only when probes were quick for long.

/// So many slow calls within the span make a domain leave membarrier. One alone is noise.
const SLOW_CALLS: usize = 3;
const SPAN_NS: u64 = 1_000_000_000;
/// Mean time between two probes; each is half to one and a half times as long. With a fixed one all probes could meet
/// the same phase of a hypervisor's period.
const PROBE_INTERVAL_NS: u64 = 25_000_000;
/// After a slow call so many times its latency pass before the next probe: probes take at most 2 % of a writer's
/// time, up to latencies of 1.2 s.
const REST: u64 = 50;
const LONGEST_REST_NS: u64 = 60_000_000_000;
/// So many quick probes in a row make a domain return: a second of them, many of a hypervisor's periods.
const QUICK_PROBES: u32 = 40;

/// What is remembered of past calls. Times in nanoseconds of one clock.
pub(crate) struct Latencies {
    /// A call that takes longer is slow.
    above_ns: u64,
    /// When the last slow calls ended, oldest first; none since the last change of sides.
    slow: [Option<u64>; SLOW_CALLS],
    /// Quick probes in a row.
    quick: u32,
    next_probe_ns: u64,
}

impl Latencies {
    /// Nothing remembered.
    pub(crate) fn new(above_ns: u64) -> Self {
        Self { above_ns, slow: [None; SLOW_CALLS], quick: 0, next_probe_ns: 0 }
    }

    /// Takes note of a writer's call. Whether readers should have fences of their own.
    pub(crate) fn called(&mut self, now_ns: u64, latency_ns: u64) -> bool {
        if latency_ns <= self.above_ns {
            return false;
        }
        self.slow.rotate_left(1);
        self.slow[SLOW_CALLS - 1] = Some(now_ns);
        let leaves = self.slow[0].is_some_and(|oldest_ns| now_ns - oldest_ns <= SPAN_NS);
        if leaves {
            *self = Self { next_probe_ns: now_ns + rest_ns(latency_ns), ..Self::new(self.above_ns) };
        }
        leaves
    }

    /// Whether a fenced domain should probe membarrier.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_probe_ns
    }

    /// Takes note of a probe. Whether writers can call membarrier again.
    pub(crate) fn probed(&mut self, now_ns: u64, latency_ns: u64) -> bool {
        if latency_ns > self.above_ns {
            (self.quick, self.next_probe_ns) = (0, now_ns + rest_ns(latency_ns));
            return false;
        }
        (self.quick, self.next_probe_ns) = (self.quick + 1, now_ns + interval_ns(now_ns));
        let returns = self.quick >= QUICK_PROBES;
        if returns {
            *self = Self::new(self.above_ns);
        }
        returns
    }
}

/// Some interval, by a multiplicative hash of the time (Knuth, The Art of Computer Programming 3, 6.4).
fn interval_ns(now_ns: u64) -> u64 {
    let hash = now_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    PROBE_INTERVAL_NS / 2 + hash % PROBE_INTERVAL_NS
}

fn rest_ns(latency_ns: u64) -> u64 {
    latency_ns.saturating_mul(REST).clamp(PROBE_INTERVAL_NS, LONGEST_REST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A writer with a call every 200 us beside a vCPU that runs `on_ms` of every 100 ms until `quota_ends_ns`.
    struct World {
        on_ms: u64,
        quota_ends_ns: u64,
        now_ns: u64,
        fenced: bool,
        /// When the domain changed sides.
        changes_ns: Vec<u64>,
        probing_ns: u64,
        latencies: Latencies,
    }

    impl World {
        fn new(on_ms: u64, quota_ends_ns: u64) -> Self {
            Self {
                on_ms,
                quota_ends_ns,
                now_ns: 0,
                fenced: false,
                changes_ns: Vec::new(),
                probing_ns: 0,
                latencies: Latencies::new(MS),
            }
        }

        /// Calls membarrier: it ends when the vCPU runs.
        fn membarrier(&mut self) -> u64 {
            let phase_ns = self.now_ns % (100 * MS);
            let is_on = self.now_ns >= self.quota_ends_ns || phase_ns < self.on_ms * MS;
            let latency_ns = if is_on { 20_000 } else { 100 * MS - phase_ns };
            self.now_ns += latency_ns;
            latency_ns
        }

        fn step(&mut self) {
            let changes = if !self.fenced {
                let latency_ns = self.membarrier();
                self.latencies.called(self.now_ns, latency_ns)
            } else if self.latencies.is_due(self.now_ns) {
                let latency_ns = self.membarrier();
                self.probing_ns += latency_ns;
                self.latencies.probed(self.now_ns, latency_ns)
            } else {
                false
            };
            if changes {
                self.fenced = !self.fenced;
                self.changes_ns.push(self.now_ns);
            }
            self.now_ns += 200_000;
        }

        fn run_until(&mut self, end_ns: u64) {
            while self.now_ns < end_ns {
                self.step();
            }
        }
    }

    #[test]
    fn a_throttled_vcpu_makes_a_domain_leave_at_once_and_stay() {
        for on_ms in [5, 20, 50, 80] {
            let mut world = World::new(on_ms, u64::MAX);
            world.run_until(60_000 * MS);
            assert_eq!(world.changes_ns.len(), 1, "{on_ms} ms: {:?}", world.changes_ns);
            assert!(world.changes_ns[0] <= 300 * MS + 200_000, "{on_ms} ms: {:?}", world.changes_ns);
            // The quick probes between slow ones come on top.
            assert!(world.probing_ns < 60_000 * MS / 40, "{on_ms} ms: {} ns", world.probing_ns);
        }
    }

    #[test]
    fn it_returns_when_the_vcpu_is_given_back() {
        let mut world = World::new(20, 10_000 * MS);
        world.run_until(10_000 * MS);
        assert!(world.fenced);
        world.run_until(16_000 * MS);
        // At the latest after the rest that follows 80 ms, and a second of quick probes.
        assert_eq!(world.changes_ns.len(), 2, "{:?}", world.changes_ns);
        assert!(!world.fenced);
    }

    #[test]
    fn rare_slow_calls_are_noise() {
        let mut latencies = Latencies::new(MS);
        for call in 0..100 {
            assert!(!latencies.called(call * 600 * MS, 10 * MS), "two within a second");
            assert!(!latencies.called(call * 600 * MS + MS, MS), "at the limit");
        }
        assert!(latencies.called(99 * 600 * MS + 2 * MS, 10 * MS), "three within a second");
    }

    #[test]
    fn a_rest_has_a_limit() {
        assert_eq!(rest_ns(80 * MS), 4_000 * MS);
        assert_eq!((rest_ns(10), rest_ns(u64::MAX)), (PROBE_INTERVAL_NS, LONGEST_REST_NS));
    }
}
