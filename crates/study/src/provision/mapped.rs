//! Turns a profile into a workload: each vCPU repeats a burst of deferred frees, other work in the kernel and in user
//! mode, and idle time, in the profile's shares.

use indexmap::IndexMap;

use super::profile::Profile;
use crate::scenario::{
    BadScenario, GroundKind, Limits, Memory, Observe, Published, Result, RunPlan, Scenario, Workload,
};

/// The simulator's object sizes, in bytes.
const OBJECT_BYTES: (f64, f64) = (16.0, 65_536.0);
/// CPU time, in us, that a guest of speed 1 needs for one pair of allocation and deferred free, and in addition for
/// each burst. Together they make the 7.14 us a pair of `rcu-memory`'s baseline: 2.8e5 pairs a second on 2 vCPUs in
/// bursts of 10.
const PAIR_US: f64 = 6.54;
const BURST_US: f64 = 6.0;
/// Frees in a burst, as in the paper's benchmark, if the rate allows it.
const BURST: f64 = 10.0;
/// Shortest and longest round of a burst, other work and idle time, in us. In shorter rounds, rounding to whole us
/// would distort the shares. In longer ones, a vCPU would go without a quiescent state for longer than real kernels do.
const ROUND_US: (f64, f64) = (50.0, 1_000.0);
/// The longest round of VMs that free less than once per ms on each vCPU, in us. These are simulated with one free per
/// round.
const LONGEST_US: f64 = 10_000.0;
/// Most frees in a burst.
const MOST: f64 = 100_000.0;
/// The fastest guest.
const SPEED: f64 = 1_000.0;

impl Profile {
    /// A scenario with the profile's behaviour and without conditions. The guest has the profile's speed, or a higher
    /// one if the rate of frees needs it.
    ///
    /// # Errors
    /// The rate needs a guest that is faster than the simulator's fastest.
    pub fn scenario(&self) -> Result<Scenario> {
        let vcpus = self.guest.vcpus.max(1) as f64;
        let (rate, bytes) = self.rate();
        let object_bytes = (bytes / rate).clamp(OBJECT_BYTES.0, OBJECT_BYTES.1).round();
        // If the size was clamped, keep the bytes per second, because bytes pile up.
        let rate = bytes / object_bytes / vcpus;
        let wanted_us = (BURST / rate * 1e6).clamp(ROUND_US.0, ROUND_US.1);
        let burst = (rate * wanted_us / 1e6).round().clamp(1.0, MOST);
        let round_us = (burst / rate * 1e6).min(LONGEST_US);
        let cost_us = PAIR_US * burst + BURST_US;
        let speed = self.guest.speed.max(cost_us / (round_us * (1.0 - self.idle_share)).max(1e-3));
        if speed > SPEED {
            let problem = format!("no guest of {vcpus} vCPUs frees {:.3e} objects a second", rate * vcpus);
            return Err(BadScenario::new("deferred_frees", problem));
        }
        let busy_us = round_us * (1.0 - self.idle_share) - cost_us / speed;
        let kernel_us = (round_us * self.kernel_share - cost_us / speed).clamp(0.0, busy_us.max(0.0));
        let whole = |us: f64| us.round() as u64;
        let memory = Memory {
            object_bytes: object_bytes as u64,
            burst: burst as u32,
            pause_us: whole(round_us * self.idle_share),
            // Only the size of memory limits the backlog.
            backlog_limit_mib: self.guest.memory_mib,
            kernel_us: whole(kernel_us),
            user_us: whole((busy_us - kernel_us).max(0.0)),
            ..Memory::default()
        };
        let mut guest = self.guest.clone();
        guest.speed = speed;
        Ok(Scenario {
            name: "plan".into(),
            title: "What a profile says of a VM".into(),
            ground: GroundKind::Sim,
            run: RunPlan { warmup_ms: 500, window_ms: 2_000, ..RunPlan::default() },
            guest,
            host: self.host.clone(),
            workload: Workload::Memory(memory),
            observe: Observe::default(),
            conditions: IndexMap::new(),
            cases: IndexMap::new(),
            sweeps: IndexMap::new(),
            space: None,
            limits: Limits::default(),
            published: Published::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::{DeferredFrees, GracePeriods, VERSION};
    use super::*;
    use crate::scenario::Guest;

    fn profile(entries: &[(f64, u64)], kernel_share: f64, idle_share: f64) -> Profile {
        let frees =
            |(per_s, bytes): &(f64, u64)| DeferredFrees { cache: "c".into(), per_s: *per_s, bytes: *bytes };
        Profile {
            profile_version: VERSION,
            source: String::new(),
            guest: Guest { speed: 8.0, ..Guest::default() },
            host: Default::default(),
            deferred_frees: entries.iter().map(frees).collect(),
            grace_periods: GracePeriods { mean_ns: 1, p99_ns: 1 },
            kernel_share,
            idle_share,
            descheduled: None,
            missing: Vec::new(),
        }
    }

    fn memory(profile: &Profile) -> (Memory, f64) {
        let scenario = profile.scenario().unwrap();
        let Workload::Memory(memory) = scenario.workload else { panic!() };
        (memory, scenario.guest.speed)
    }

    #[test]
    fn a_round_has_the_profile_s_rate_bytes_and_shares() {
        // 10,000 frees per second on each vCPU are 10 per ms, which take (65.4 + 6) / 8 us.
        let (memory, speed) = memory(&profile(&[(10_000.0, 100), (10_000.0, 300)], 0.3, 0.5));
        assert_eq!((memory.burst, memory.object_bytes, speed), (10, 200, 8.0));
        assert_eq!((memory.pause_us, memory.kernel_us, memory.user_us), (500, 291, 200));
    }

    #[test]
    fn rare_frees_come_one_at_a_time_and_large_ones_in_pieces() {
        let (rare, _) = memory(&profile(&[(1.0, 4_096)], 0.5, 0.0));
        assert_eq!((rare.burst, rare.kernel_us + rare.user_us), (1, 9_998));
        let (large, _) = memory(&profile(&[(2_000.0, 1 << 20)], 0.5, 0.0));
        // Each object is simulated as 16 pieces of 64 KiB.
        assert_eq!((large.object_bytes, large.burst), (65_536, 10));
    }

    #[test]
    fn a_rate_beyond_the_guest_s_speed_makes_it_faster_up_to_a_limit() {
        let (fast, speed) = memory(&profile(&[(10e6, 64)], 1.0, 0.0));
        assert!((speed - (PAIR_US * 250.0 + BURST_US) / 50.0).abs() < 1e-9, "{speed}");
        assert_eq!((fast.burst, fast.kernel_us, fast.user_us, fast.pause_us), (250, 0, 0, 0));
        let beyond = profile(&[(1e9, 64)], 1.0, 0.0).scenario().unwrap_err();
        assert!(
            beyond.to_string().starts_with("deferred_frees: no guest of 2 vCPUs frees 1.000e9"),
            "{beyond}"
        );
    }
}
