//! Decides whether callers or a dedicated thread call membarrier. A pure decision: times and latencies are passed in.
//!
//! A descheduled vCPU does not make every call slow. One that may run 20 ms of every 100 ms answers at once while it
//! runs, so that one call of 80 ms stands among many quick ones. Hence two slow calls within a span of time are
//! enough to hand the calls over, even with quick ones between them. The calls are given back only after a span
//! without a slow one, and this span doubles with each relapse.

use crate::units::{MILLISECOND_NS, SECOND_NS};

/// Two slow calls within this time are not noise.
const SPAN_NS: u64 = SECOND_NS;
/// Mean time between two probes. Each interval is half to one and a half times as long, because probes at a fixed
/// interval could all meet the same phase of a hypervisor's period.
const PROBE_INTERVAL_NS: u64 = 25 * MILLISECOND_NS;
/// After a slow probe, the next one waits for this many times its latency. So probes use at most 2 % of the CPU that
/// they run on, up to latencies of 1.2 s.
const REST: u64 = 50;
const LONGEST_REST_NS: u64 = 60 * SECOND_NS;
/// The calls are given back when none was slow for this long: many of a hypervisor's periods.
const CALM_NS: u64 = SECOND_NS;
const LONGEST_CALM_NS: u64 = 64 * SECOND_NS;
/// If calls turn slow again within this time, the next calm span must be twice as long.
const RELAPSE_NS: u64 = 60 * SECOND_NS;

/// What follows from a slow call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Do nothing.
    Noise,
    /// Until this time, callers measure the CPU time of their calls.
    Watch(u64),
    /// From now on the thread makes the calls.
    HandOver,
}

/// What is remembered of past calls. All times are nanoseconds of one clock.
pub(crate) struct Latencies {
    /// The limit of the call that led to the hand-over. A round that takes longer is slow.
    limit_ns: u64,
    /// Since when all rounds of the thread have been quick.
    quick_since_ns: Option<u64>,
    /// How long they must stay quick before the calls are given back.
    calm_ns: u64,
    /// When calls were last given back.
    returned_ns: Option<u64>,
    next_probe_ns: u64,
}

impl Latencies {
    /// Nothing remembered.
    pub(crate) const fn new() -> Self {
        Self { limit_ns: 0, quick_since_ns: None, calm_ns: CALM_NS, returned_ns: None, next_probe_ns: 0 }
    }

    /// Records a call that a caller made itself and that took longer than its limit. `waited_ns` is how much of it
    /// the caller waited for other CPUs, if that was measured. Time in which the caller itself was descheduled says
    /// nothing about other CPUs.
    pub(crate) fn called(
        &mut self,
        now_ns: u64,
        limit_ns: u64,
        latency_ns: u64,
        waited_ns: Option<u64>,
    ) -> Verdict {
        match waited_ns {
            None => return Verdict::Watch(now_ns + SPAN_NS),
            Some(ns) if ns <= limit_ns => return Verdict::Noise,
            Some(_) => {}
        }
        let relapse = self.returned_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) <= RELAPSE_NS);
        self.calm_ns = if relapse { (2 * self.calm_ns).min(LONGEST_CALM_NS) } else { CALM_NS };
        self.limit_ns = limit_ns;
        self.quick_since_ns = None;
        self.next_probe_ns = now_ns + rest_ns(latency_ns);
        Verdict::HandOver
    }

    /// Records that the thread makes the calls although none was slow. A round that takes longer than `limit_ns` is slow.
    pub(crate) fn handed_over_ahead(&mut self, now_ns: u64, limit_ns: u64) {
        (self.limit_ns, self.calm_ns, self.quick_since_ns) = (limit_ns, CALM_NS, None);
        self.next_probe_ns = now_ns + interval_ns(now_ns);
    }

    /// Records a round of the thread, timed from when it was asked for. Returns whether the calls are given back.
    pub(crate) fn round(&mut self, now_ns: u64, latency_ns: u64) -> bool {
        if self.is_slow(latency_ns) {
            (self.quick_since_ns, self.next_probe_ns) = (None, now_ns + rest_ns(latency_ns));
            return false;
        }
        self.next_probe_ns = now_ns + interval_ns(now_ns);
        let calm = now_ns - *self.quick_since_ns.get_or_insert(now_ns) >= self.calm_ns;
        if calm {
            self.returned_ns = Some(now_ns);
        }
        calm
    }

    /// Whether a round that took so long was slow.
    pub(crate) fn is_slow(&self, latency_ns: u64) -> bool {
        latency_ns > self.limit_ns
    }

    /// When the thread makes a round on its own if nobody asks for one.
    pub(crate) fn next_probe_ns(&self) -> u64 {
        self.next_probe_ns
    }
}

/// In percent. A hypervisor has not taken away a CPU that executes something for at least this share of the time. A
/// CPU that was taken away for less than the rest looks the same; then callers wait for it now and then, and each
/// relapse doubles the time until the calls are given back.
const CROWDED: u64 = 90;

/// Why the thread waits for its own CPU: either a hypervisor has taken the CPU away, or other threads use it. The first
/// is a reason to make the calls. The second is not, and on a machine whose CPUs are all in use it would never end.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// The CPU of the last look, when that was, and for how long the CPU had been busy.
    looked: Option<(usize, u64, u64)>,
    crowded: bool,
}

impl Crowd {
    /// Whether other threads kept this CPU busy between the last two looks, which are at least a second apart. False
    /// while that is unknown. `busy_ns` returns for how long the CPU has executed something.
    pub(crate) fn is_at(&mut self, cpu: usize, now_ns: u64, busy_ns: impl FnOnce() -> Option<u64>) -> bool {
        let last = self.looked.filter(|&(looked_at, ..)| looked_at == cpu);
        if last.is_none_or(|(_, at_ns, _)| now_ns - at_ns >= SPAN_NS) {
            self.looked = busy_ns().map(|busy_ns| (cpu, now_ns, busy_ns));
            self.crowded = last.zip(self.looked).is_some_and(|((_, from_ns, before_ns), (.., busy_ns))| {
                busy_ns.saturating_sub(before_ns) >= (now_ns - from_ns) / 100 * CROWDED
            });
        }
        self.crowded
    }
}

/// An interval that varies by a multiplicative hash of the time (Knuth, The Art of Computer Programming 3, 6.4).
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

    const MS: u64 = MILLISECOND_NS;

    /// A writer that calls every 200 us, beside a vCPU that runs `on_ms` of every 100 ms until `quota_ends_ns`. The
    /// fence thread calls from that vCPU.
    struct World {
        on_ms: u64,
        quota_ends_ns: u64,
        now_ns: u64,
        watched_until_ns: u64,
        handed_over: bool,
        /// When the calls changed hands.
        changes_ns: Vec<u64>,
        /// How long the writer waited in all.
        waited_ns: u64,
        latencies: Latencies,
    }

    impl World {
        fn new(on_ms: u64, quota_ends_ns: u64) -> Self {
            let (now_ns, watched_until_ns, handed_over) = (0, 0, false);
            let (changes_ns, waited_ns, latencies) = (Vec::new(), 0, Latencies::new());
            Self {
                on_ms,
                quota_ends_ns,
                now_ns,
                watched_until_ns,
                handed_over,
                changes_ns,
                waited_ns,
                latencies,
            }
        }

        /// How long the vCPU takes to answer.
        fn latency_ns(&self) -> u64 {
            let phase_ns = self.now_ns % (100 * MS);
            if self.now_ns >= self.quota_ends_ns || phase_ns < self.on_ms * MS {
                10_000
            } else {
                100 * MS - phase_ns
            }
        }

        fn step(&mut self) {
            let latency_ns = self.latency_ns();
            let changes = if self.handed_over {
                self.latencies.round(self.now_ns + latency_ns, latency_ns)
            } else {
                let waited_ns = (self.now_ns < self.watched_until_ns).then_some(latency_ns);
                self.now_ns += latency_ns;
                self.waited_ns += latency_ns;
                let verdict =
                    (latency_ns > MS).then(|| self.latencies.called(self.now_ns, MS, latency_ns, waited_ns));
                if let Some(Verdict::Watch(until_ns)) = verdict {
                    self.watched_until_ns = until_ns;
                }
                verdict == Some(Verdict::HandOver)
            };
            if changes {
                self.handed_over = !self.handed_over;
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
    fn a_writer_beside_a_throttled_vcpu_waits_twice() {
        for on_ms in [5, 20, 50, 80] {
            let mut world = World::new(on_ms, u64::MAX);
            world.run_until(60_000 * MS);
            assert_eq!(world.changes_ns.len(), 1, "{on_ms} ms: {:?}", world.changes_ns);
            assert!(world.changes_ns[0] <= 200 * MS + 200_000, "{on_ms} ms: {:?}", world.changes_ns);
            assert!(
                world.waited_ns <= 2 * (100 - on_ms) * MS + 10 * MS,
                "{on_ms} ms: {} ns",
                world.waited_ns
            );
        }
    }

    #[test]
    fn calls_return_a_second_after_the_vcpu_is_given_back() {
        let mut world = World::new(20, 10_000 * MS);
        world.run_until(10_000 * MS);
        assert!(world.handed_over);
        world.run_until(11_100 * MS);
        assert_eq!(world.changes_ns.len(), 2, "{:?}", world.changes_ns);
        assert!(!world.handed_over);
    }

    #[test]
    fn a_relapse_makes_the_next_return_take_twice_as_long() {
        let mut latencies = Latencies::new();
        let mut now_ns = 0;
        for calm_s in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(latencies.called(now_ns, MS, 80 * MS, Some(80 * MS)), Verdict::HandOver);
            let from_ns = now_ns;
            while !latencies.round(now_ns, MS) {
                now_ns += 10 * MS;
            }
            assert_eq!(now_ns - from_ns, calm_s * 1_000 * MS);
            now_ns += 50_000 * MS;
        }
        now_ns += 11_000 * MS;
        assert_eq!(latencies.called(now_ns, MS, 80 * MS, Some(80 * MS)), Verdict::HandOver);
        assert!(
            !latencies.round(now_ns, MS) && latencies.round(now_ns + 1_000 * MS, MS),
            "after more than a minute it is no relapse"
        );
    }

    #[test]
    fn time_in_which_the_caller_was_descheduled_is_noise() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.called(5, MS, 10 * MS, None), Verdict::Watch(5 + SPAN_NS), "not measured");
        assert_eq!(latencies.called(6, MS, 10 * MS, Some(MS)), Verdict::Noise, "at the limit");
        assert_eq!(latencies.called(7, MS, 10 * MS, Some(MS + 1)), Verdict::HandOver);
    }

    #[test]
    fn a_cpu_that_others_use_is_crowded_and_one_that_is_away_is_not() {
        let mut crowd = Crowd::default();
        assert!(!crowd.is_at(1, 0, || Some(500 * MS)), "nothing is known");
        assert!(!crowd.is_at(1, SPAN_NS - 1, || panic!("too soon")));
        assert!(crowd.is_at(1, 1_000 * MS, || Some(1_400 * MS)), "busy for 900 of 1,000 ms");
        assert!(crowd.is_at(1, 1_001 * MS, || panic!("too soon")));
        assert!(!crowd.is_at(1, 3_000 * MS, || Some(3_199 * MS)), "for 1,799 of 2,000");
        assert!(crowd.is_at(1, 4_000 * MS, || Some(4_199 * MS)));
        assert!(!crowd.is_at(0, 4_001 * MS, || Some(9_000 * MS)), "another CPU");
        assert!(!crowd.is_at(0, 6_000 * MS, || None) && !crowd.is_at(0, 8_000 * MS, || Some(20_000 * MS)));
    }

    #[test]
    fn probes_come_at_intervals_and_rest_after_a_slow_one() {
        let mut latencies = Latencies::new();
        latencies.called(0, MS, 2 * MS, Some(2 * MS));
        assert_eq!(latencies.next_probe_ns(), 100 * MS);
        latencies.round(0, 80 * MS);
        assert_eq!(latencies.next_probe_ns(), 4_000 * MS);
        latencies.round(7, MS);
        assert!((PROBE_INTERVAL_NS / 2..=2 * PROBE_INTERVAL_NS).contains(&latencies.next_probe_ns()));
        assert_eq!((rest_ns(10), rest_ns(u64::MAX)), (PROBE_INTERVAL_NS, LONGEST_REST_NS));
    }
}
