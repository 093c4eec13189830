//! The remedies of a condition: those that the guest's kernel takes, and those that a world carries out. (`short-slices` and
//! `unpin` are in how the host is built, the cost of marks is in the guest's costs.)

use reprieve_policy::boost::{self, Aim};
use reprieve_policy::{gang, grant, pressure, steady};
use reprieve_study::Scenario;
use reprieve_study::scenario::{Boost, CoSchedule, Condition, HostModel, Remedy, SliceGrant, SteadyCpus};
use reprieve_study::units::{MIB, MILLISECOND_NS};

use crate::guest::rcu::Ask;
use crate::guest::{Remedies, latent};
use crate::world::{Times, World};

/// Those of the guest.
pub fn of_guest(scenario: &Scenario, condition: &Condition) -> Remedies {
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
        kthread_prio: has(Remedy::KthreadPrio),
        places_kthread: has(Remedy::KthreadPlaced),
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

/// Adds those of the world for that guest.
pub fn add(world: &mut World, guest: usize, model: &HostModel, condition: &Condition, seed: u64) {
    // Threads and timers are added in the order of the enum, whatever the condition's order is.
    for remedy in Remedy::ALL.into_iter().filter(|remedy| condition.remedies.contains(remedy)) {
        match remedy {
            Remedy::Boost => add_boosting(world, guest, &model.boost, Aim::GracePeriods),
            Remedy::BoostUnaimed => {
                let aim = Aim::Clock { per_s: model.boost.unaimed_per_s, seed };
                add_boosting(world, guest, &model.boost, aim);
            }
            Remedy::SliceGrant => {
                let SliceGrant { slice_us, debt_us, .. } = model.slice_grant;
                let settings = grant::Settings { slice_ns: slice_us * 1000, debt_ns: debt_us * 1000 };
                world.add_granting(guest, settings);
            }
            Remedy::CoSchedule => {
                let CoSchedule { slice_us, lead_us, look_us } = model.co_schedule;
                let settings = gang::Settings { slice_ns: slice_us * 1000, lead_ns: lead_us * 1000 };
                world.add_coscheduling(guest, settings, look_us * 1000);
            }
            Remedy::SteadyCpus => {
                let SteadyCpus { steal_percent, look_ms, retry_ms } = model.steady_cpus;
                let (steal_permille, retry_ns) = (steal_percent * 10, retry_ms * MILLISECOND_NS);
                let settings = steady::Settings { steal_permille, retry_ns };
                world.add_steadying(guest, settings, look_ms * MILLISECOND_NS);
            }
            Remedy::Oracle => world.add_oracle(guest),
            // An even share is made of the scenario, before anything is built.
            Remedy::EvenShare
            | Remedy::ShortSlices
            | Remedy::Unpin
            | Remedy::DeferredAwareSlab
            | Remedy::BackPressure
            | Remedy::Expedited
            | Remedy::AskFirst
            | Remedy::Offload
            | Remedy::KthreadPrio
            | Remedy::KthreadPlaced => {}
        }
    }
}

fn add_boosting(world: &mut World, guest: usize, boost: &Boost, aim: Aim) {
    let settings = boost::Settings {
        threshold_ns: boost.threshold_us * 1000,
        cap_ns: boost.cap_us * 1000,
        cool_down_ns: boost.cool_down_us * 1000,
        debt_ns: boost.debt_us * 1000,
        share_permille: boost.share_percent * 10,
        before_tick: boost.before_tick,
    };
    let times = Times { every_ns: boost.look_us * 1000, cost_ns: boost.look_ns };
    world.add_boosting(guest, (aim, settings), times);
}
