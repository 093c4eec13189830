//! Workloads: what the guest's tasks do, as streams of operations.
//!
//! The costs are those of the guests of `records/*.json` (Debian 6.1 under emulation, 2 vCPUs), fitted to their
//! baselines alone, and scaled by the guest's speed. What each is fitted to stands at the constant.

mod clone;
mod computing;
mod io;
mod memory;
mod postmark;
mod requests;
mod sync;
mod wakeup;

use reprieve_study::Scenario;
use reprieve_study::scenario::Workload;
use reprieve_study::units::MILLISECOND_NS;

use crate::guest::Guest;
use crate::random::Stream;
use crate::sched::fair::NICE_0;

/// Costs of a workload's own code, scaled to the guest's speed.
#[derive(Clone, Copy, Debug)]
struct Pace {
    speed_permille: u64,
    /// The speed that the scenario gives the guest; the other one is above it when the guest is made up for CPU time that
    /// it does not get (a counterfactual).
    given_permille: u64,
}

impl Pace {
    /// Time that takes `us` microseconds in the guests of the calibration; never none, however fast the guest is.
    fn us(self, us: u64) -> u64 {
        (us * 1_000_000 / self.speed_permille).max(1)
    }

    /// Time that takes what the scenario states to be `us` microseconds of CPU time in this guest.
    fn stated_us(self, us: u64) -> u64 {
        let ns = u128::from(us) * 1000 * u128::from(self.given_permille) / u128::from(self.speed_permille);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// A time that is fixed, or uniform around its mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    low_ns: u64,
    high_ns: u64,
}

impl Spread {
    /// So many microseconds; from 1 - `spread` to 1 + `spread` times them (in steps of a thousandth).
    pub fn of_us(us: u64, spread: f64) -> Spread {
        Spread::of_ns(us * 1000, spread)
    }

    /// The same of nanoseconds.
    pub fn of_ns(ns: u64, spread: f64) -> Spread {
        let permille = (spread * 1000.0).round() as u64;
        let by_ns = ns * permille.min(1000) / 1000;
        Spread { low_ns: (ns - by_ns).max(1), high_ns: (ns + by_ns).max(1) }
    }

    /// Draws one; a fixed time takes nothing from the stream.
    pub fn draw(self, stream: &mut Stream) -> u64 {
        if self.low_ns == self.high_ns { self.low_ns } else { stream.within(self.low_ns, self.high_ns) }
    }
}

/// The guest's speed in thousandths of that of the calibration's guests.
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

/// Part of the memory that is occupied after boot, in thousandths, so that the footprint of the baseline is met:
/// the guests of the records used 28 MiB of 256 and of 512 MiB before the workload began; larger guests use more
/// because `struct page` takes 64 bytes a page.
pub fn boot_bytes(memory_bytes: u64) -> u64 {
    (24 << 20) + memory_bytes / 64
}

/// The workload that does not pause when memory is short (a counterfactual): only an allocation that fails stops it.
pub fn unthrottled(scenario: &Scenario) -> Workload {
    let mut workload = scenario.workload.clone();
    match &mut workload {
        // More than all memory cannot wait for a grace period.
        Workload::Memory { backlog_limit_mib, .. } => *backlog_limit_mib = scenario.guest.memory_mib,
        Workload::Clone { stop_below_mib, .. } => *stop_below_mib = 0,
        Workload::Postmark { .. }
        | Workload::DeleteFree { .. }
        | Workload::Wakeup { .. }
        | Workload::Requests { .. }
        | Workload::Io(_)
        | Workload::Fio(_) => {}
    }
    workload
}

/// Adds the workload's tasks to a guest of that speed, the `number`th that runs it.
pub fn add(guest: &mut Guest, scenario: &Scenario, speed_permille: u64, number: u64) {
    let pace = Pace { speed_permille, given_permille: self::speed_permille(scenario) };
    match &scenario.workload {
        Workload::Memory { object_bytes, burst, pause_us, backlog_limit_mib, batched } => {
            let limit_mib = match backlog_limit_mib {
                0 => scenario.guest.memory_mib / 2,
                limit => *limit,
            };
            let limit_objects = (limit_mib << 20) / object_bytes;
            memory::add(guest, pace, *object_bytes, *burst, *pause_us, limit_objects, *batched);
        }
        Workload::Clone { workers, namespaces, stop_below_mib, computing } => {
            let workers = if *workers == 0 { scenario.guest.vcpus } else { *workers as usize };
            clone::add(guest, pace, workers, namespaces, stop_below_mib << 20);
            computing::add(guest, workers..workers + *computing as usize, NICE_0);
        }
        Workload::Postmark { .. } => postmark::add(guest, pace, &scenario.workload),
        Workload::Wakeup { sleep_us, sleep_spread, work_us, .. } => {
            return wakeup::add(guest, pace, Spread::of_us(*sleep_us, *sleep_spread), *work_us);
        }
        Workload::Requests { service_us, .. } => return requests::add(guest, pace.stated_us(*service_us)),
        Workload::Io(io) => return io::add(guest, scenario, io, number),
        Workload::DeleteFree { .. } | Workload::Fio(_) => {
            unreachable!("a scenario's check refuses it on this ground")
        }
    }
    // With one vCPU membarrier() has nobody to wait for: its latency is not synchronize_rcu's.
    if scenario.observe.sync_every_ms > 0 && scenario.guest.vcpus > 1 {
        sync::add(guest, scenario.observe.sync_every_ms * MILLISECOND_NS);
    }
}

/// Workers that must be ready before the measured part begins, and done before it is over: none for workloads that
/// go on for ever.
pub fn workers(workload: &Workload) -> Option<u32> {
    match workload {
        Workload::Postmark { processes, .. } => Some(*processes),
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
        // More than a u64 holds on the way.
        assert_eq!(pace(1_000_000).stated_us(u64::MAX / 1_000), u64::MAX / 1_000 * 1_000);
    }
}
