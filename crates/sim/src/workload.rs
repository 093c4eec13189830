//! Workloads: what the guest's tasks do, as streams of operations.
//!
//! CPU costs are fitted to the guests of `records/*.json` (Debian 6.1 under emulation, 2 vCPUs), to their baselines
//! only, and scaled by the guest's speed. Each constant says what it is fitted to.

mod clone;
mod computing;
mod io;
mod memory;
mod postmark;
mod requests;
mod sync;
mod tasks;
mod wakeup;

use reprieve_study::scenario::{BadScenario, Workload};
use reprieve_study::units::MILLISECOND_NS;
use reprieve_study::{GroundKind, Scenario};

use crate::guest::Guest;
use crate::random::Stream;
use crate::sched::fair::NICE_0;

/// Costs of a workload's own code, scaled to the guest's speed.
#[derive(Clone, Copy, Debug)]
struct Pace {
    speed_permille: u64,
    /// The guest's speed in the scenario. `speed_permille` is higher in the counterfactual `cpu-share`.
    given_permille: u64,
}

impl Pace {
    /// The time for what takes `us` microseconds in the calibrated guests; at least 1 ns.
    fn us(self, us: u64) -> u64 {
        (us * 1_000_000 / self.speed_permille).max(1)
    }

    /// The time for what the scenario says takes `us` microseconds of CPU time in this guest.
    fn stated_us(self, us: u64) -> u64 {
        let ns = u128::from(us) * 1000 * u128::from(self.given_permille) / u128::from(self.speed_permille);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// A duration: fixed, or uniform around its mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    low_ns: u64,
    high_ns: u64,
}

impl Spread {
    /// `us` microseconds, uniform within `spread` of it: from 1 - `spread` to 1 + `spread` times (in thousandths).
    pub fn of_us(us: u64, spread: f64) -> Spread {
        Spread::of_ns(us * 1000, spread)
    }

    /// The same in nanoseconds.
    pub fn of_ns(ns: u64, spread: f64) -> Spread {
        let permille = (spread * 1000.0).round() as u64;
        let by_ns = ns * permille.min(1000) / 1000;
        Spread { low_ns: (ns - by_ns).max(1), high_ns: (ns + by_ns).max(1) }
    }

    /// Draws a duration. A fixed one does not advance the stream.
    pub fn draw(self, stream: &mut Stream) -> u64 {
        if self.low_ns == self.high_ns { self.low_ns } else { stream.within(self.low_ns, self.high_ns) }
    }
}

/// The guest's speed in thousandths of that of the calibrated guests.
pub fn speed_permille(scenario: &Scenario) -> u64 {
    ((scenario.guest.speed * 1000.0) as u64).max(1)
}

/// Spinlocks that the workload shares.
pub fn locks(workload: &Workload) -> u32 {
    match workload {
        Workload::Postmark { .. } => postmark::LOCKS,
        _ => 0,
    }
}

/// Memory in use after boot. Fitted to the baseline's footprint: the recorded guests used 28 MiB of 256 and of 512 MiB
/// before the workload began. Larger guests use more, because `struct page` takes 64 bytes a page.
pub fn boot_bytes(memory_bytes: u64) -> u64 {
    (24 << 20) + memory_bytes / 64
}

/// The workload for the counterfactual without memory pressure: only a failed allocation stops it.
pub fn unthrottled(scenario: &Scenario) -> Workload {
    let mut workload = scenario.workload.clone();
    match &mut workload {
        // No more than all memory can wait for a grace period.
        Workload::Memory(memory) => memory.backlog_limit_mib = scenario.guest.memory_mib,
        Workload::Clone(clones) => clones.stop_below_mib = 0,
        _ => {}
    }
    workload
}

/// Adds the workload's tasks to a guest of that speed. `number` tells guests with the same workload apart.
///
/// # Errors
/// A workload that the simulator does not run.
pub fn add(
    guest: &mut Guest,
    scenario: &Scenario,
    speed_permille: u64,
    number: u64,
) -> Result<(), BadScenario> {
    let pace = Pace { speed_permille, given_permille: self::speed_permille(scenario) };
    match &scenario.workload {
        Workload::Memory(memory) => {
            let limit_mib = match memory.backlog_limit_mib {
                0 => scenario.guest.memory_mib / 2,
                limit => limit,
            };
            let workers = memory.workers_on(scenario.guest.vcpus);
            memory::add(guest, pace, workers, memory, (limit_mib << 20) / memory.object_bytes);
            computing::add(guest, workers..workers + memory.computing as usize, NICE_0);
        }
        Workload::Clone(clones) => {
            let workers = workers_of(clones.workers, scenario);
            clone::add(guest, pace, workers, &clones.namespaces, clones.stop_below_mib << 20);
            computing::add(guest, workers..workers + clones.computing as usize, NICE_0);
        }
        Workload::Postmark(postmark) => postmark::add(guest, pace, postmark),
        Workload::Wakeup(wakeup) => {
            wakeup::add(guest, pace, Spread::of_us(wakeup.sleep_us, wakeup.sleep_spread), wakeup.work_us);
        }
        Workload::Requests(served) => requests::add(guest, pace.stated_us(served.service_us)),
        Workload::Tasks(asked) => tasks::add(guest, pace, asked),
        Workload::Io(io) => io::add(guest, scenario, io, number),
        Workload::DeleteFree(_) | Workload::Fio(_) => return Err(scenario.workload.not_on(GroundKind::Sim)),
    }
    // With one vCPU membarrier() returns at once, so its latency would not be that of synchronize_rcu().
    if scenario.workload.loads_rcu() && scenario.observe.sync_every_ms > 0 && scenario.guest.vcpus > 1 {
        sync::add(guest, scenario.observe.sync_every_ms * MILLISECOND_NS);
    }
    Ok(())
}

/// The workers that a scenario asks for: 0 means one on each vCPU.
fn workers_of(asked: u32, scenario: &Scenario) -> usize {
    if asked == 0 { scenario.guest.vcpus } else { asked as usize }
}

/// The number of workers of a workload of fixed size. All must be ready before the measured part begins, and finish
/// before it ends.
pub fn workers(workload: &Workload) -> Option<u32> {
    match workload {
        Workload::Postmark(postmark) => Some(postmark.processes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_however_fast_the_guest_is() {
        let pace = |speed_permille| Pace { speed_permille, given_permille: 1_000_000 };
        assert_eq!((pace(1_000).us(4), pace(16_000_000).us(4)), (4_000, 1));
        // The product exceeds 64 bits.
        assert_eq!(pace(1_000_000).stated_us(u64::MAX / 1_000), u64::MAX / 1_000 * 1_000);
    }
}
