//! The remedies of a condition that the guest's kernel takes.

use reprieve_policy::pressure;
use reprieve_study::Scenario;
use reprieve_study::scenario::{Condition, Remedy};
use reprieve_study::units::MIB;

use crate::guest::rcu::Ask;
use crate::guest::{Remedies, latent};

/// Those of the guest.
pub(super) fn of_guest(scenario: &Scenario, condition: &Condition) -> Remedies {
    let has = |remedy| condition.remedies.contains(&remedy);
    let guest = &scenario.guest;
    let slab = || latent::Settings {
        keep_jiffies: jiffies(guest.slab.keep_ms, guest.hz),
        short_percent: guest.slab.short_percent,
        expedite: guest.slab.expedite,
    };
    let pressure = || pressure::Settings {
        low_bytes: guest.pressure.low_mib * MIB,
        high_bytes: guest.pressure.high_mib * MIB,
        longest_ns: guest.pressure.longest_us * 1000,
        synchronize: guest.pressure.synchronize,
    };
    Remedies {
        slab: has(Remedy::DeferredAwareSlab).then(slab),
        pressure: has(Remedy::BackPressure).then(pressure),
        expedites: has(Remedy::Expedited),
    }
}

/// When grace periods ask, if they do.
pub(super) fn ask(scenario: &Scenario, condition: &Condition) -> Option<Ask> {
    let ask = if scenario.guest.ask_first.at_start { Ask::AtStart } else { Ask::AtFirstScan };
    condition.remedies.contains(&Remedy::AskFirst).then_some(ask)
}

/// Milliseconds as jiffies, at least one.
fn jiffies(ms: u64, hz: u64) -> u64 {
    (ms * hz).div_ceil(1000).max(1)
}
