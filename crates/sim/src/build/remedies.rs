//! The remedies of a condition that the guest's kernel takes.

use reprieve_study::Scenario;
use reprieve_study::scenario::{Condition, Remedy};

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
    Remedies { slab: has(Remedy::DeferredAwareSlab).then(slab) }
}

/// Milliseconds as jiffies, at least one.
fn jiffies(ms: u64, hz: u64) -> u64 {
    (ms * hz).div_ceil(1000).max(1)
}
