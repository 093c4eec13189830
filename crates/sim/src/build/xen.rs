//! Xen's schedulers as a scenario configures them, and the domain of each thread.
//!
//! The guest under test is a domain. So is each neighbour VM (with as many vCPUs as the guest), each spinner and each
//! spike. The host's own threads belong to dom0.

use reprieve_study::scenario::xen::WEIGHT;
use reprieve_study::scenario::{HostModel, SchedulerKind, Xen, XenFix};
use reprieve_study::units::MILLISECOND_NS;

use crate::random::Stream;
use crate::sched::credit::{self, Credit, Fixes};
use crate::sched::credit2::{self, Credit2};
use crate::sched::rtds::{self, Rtds};
use crate::sched::xen::DomainSpec;
use crate::sched::{Scheduler, Spec};

/// The host's own threads.
pub const DOM0: u32 = 0;
/// The guest under test.
pub const GUEST: u32 = 1;
/// The first domain of a spike, above all spinners.
const SPIKES: u32 = 1 << 31;

/// The first domain of a spinner, above all neighbours.
const SPINNERS: u32 = 1 << 30;

/// The domain of a neighbour's busy vCPU. `number` counts them over all neighbours.
pub fn neighbour(number: u64, vcpus: usize) -> u32 {
    GUEST + 1 + (number / vcpus.max(1) as u64) as u32
}

/// The domain of that spike.
pub fn spike(number: usize) -> u32 {
    SPIKES + number as u32
}

/// A thread of that domain. Under Xen's schedulers it has Xen's default weight.
pub fn thread(host: &HostModel, domain: u32, spec: Spec) -> Spec {
    weighed(host, WEIGHT, 0, Spec { domain: DomainSpec::numbered(domain), ..spec })
}

/// A vCPU of the guest under test.
pub fn guest(host: &HostModel, spec: Spec) -> Spec {
    weighed(host, host.xen.guest_weight, host.xen.guest_cap_percent, spec)
}

/// The vCPU of a spinner.
pub fn spinner(host: &HostModel, number: u32, spec: Spec) -> Spec {
    let spec = Spec { domain: DomainSpec::numbered(SPINNERS + number), ..spec };
    weighed(host, host.xen.spinner_weight, host.xen.spinner_cap_percent, spec)
}

fn weighed(host: &HostModel, weight: u32, cap_percent: u32, spec: Spec) -> Spec {
    if !host.scheduler.is_xen() {
        return spec;
    }
    Spec { weight, domain: DomainSpec { cap_percent, ..spec.domain }, ..spec }
}

/// The scheduler of a host whose `scheduler` is one of Xen's.
pub fn scheduler(host: &HostModel, pcpus: usize, seed: u64) -> Box<dyn Scheduler> {
    let cpus = pcpus as u32;
    let ratelimit_ns = host.xen.ratelimit_us * 1_000;
    match host.scheduler {
        SchedulerKind::Credit2 => {
            let retry_refused = host.xen.fixes.contains(&XenFix::LateWake);
            let params = credit2::Params { ratelimit_ns, retry_refused, ..credit2::Params::xen(cpus) };
            Box::new(Credit2::new(params))
        }
        SchedulerKind::Rtds => Box::new(Rtds::new(rtds::Params::xen(cpus))),
        _ => Box::new(Credit::new(credit_params(&host.xen, cpus, seed))),
    }
}

/// The phases of ticks and accounting are drawn from the seed.
fn credit_params(xen: &Xen, cpus: u32, seed: u64) -> credit::Params {
    let asked = Fixes {
        boost_on_migration: xen.fixes.contains(&XenFix::BoostOnMigration),
        inactive_debt: xen.fixes.contains(&XenFix::InactiveDebt),
        boost_erased: xen.fixes.contains(&XenFix::BoostErased),
    };
    let mut params = credit::Params {
        slice_ns: xen.slice_ms * MILLISECOND_NS,
        ratelimit_ns: xen.ratelimit_us * 1_000,
        fixes: Fixes::of(xen.version) | asked,
        race_window_ns: xen.race_window_ns,
        ..credit::Params::xen(xen.version, cpus)
    };
    let phase_ns = |kind, number, most_ns| Stream::new(seed, kind, number).within(1, most_ns);
    params.accounting_phase_ns = phase_ns("credit accounting", 0, params.slice_ns);
    params.tick_phases_ns =
        (0..cpus).map(|cpu| phase_ns("credit tick", cpu.into(), params.tick_ns())).collect();
    params
}
