//! vCPUs of a guest that run together ([`reprieve_policy::gang`]). The host's scheduler itself looks and decides, so that
//! this takes no CPU time of its own; the switches that it causes do.

use reprieve_policy::gang::{Gang, Order, Settings, Vcpu};

use super::{Source, World, register};
use crate::host::State;
use crate::queue::{Class, Timer};

/// The host's part.
#[derive(Debug)]
pub(super) struct Coscheduling {
    guest: usize,
    gang: Gang,
    /// Expires at each look.
    timer: Timer,
    look_ns: u64,
    /// vCPUs as of the last look.
    vcpus: Vec<Vcpu>,
    slices: u64,
}

impl World {
    /// From now on that guest's vCPUs run together, with looks that far apart.
    pub fn add_coscheduling(&mut self, guest: usize, settings: Settings, look_ns: u64) {
        let timer = self.queue.add(Class::HostClock);
        register(&mut self.sources, timer, Source::Coscheduling);
        self.queue.arm(timer, self.now_ns + look_ns);
        let vcpus = vec![Vcpu::default(); self.guests[guest].vcpus().len()];
        let gang = Gang::new(settings);
        self.coscheduling = Some(Coscheduling { guest, gang, timer, look_ns, vcpus, slices: 0 });
    }

    /// Slices of a gang that have begun; `None` without gangs.
    pub fn gang_slices(&self) -> Option<u64> {
        self.coscheduling.as_ref().map(|coscheduling| coscheduling.slices)
    }

    /// The scheduler looks, and does what the policy says.
    pub(super) fn look_and_gather(&mut self) {
        let now_ns = self.now_ns;
        let Some(Coscheduling { guest, gang, timer, look_ns, vcpus, slices }) = &mut self.coscheduling else {
            return;
        };
        let placement = &self.placements[*guest];
        let host = &mut self.hosts[placement.host];
        let Some(scheduler) = host.scheduler.boosting() else { return };
        for (vcpu, entity) in vcpus.iter_mut().zip(&placement.threads) {
            let thread = &host.threads[entity.0 as usize];
            *vcpu = Vcpu {
                is_on: thread.state == State::Running,
                is_off: thread.state == State::Runnable && thread.paused_until_ns.is_none(),
                debt_ns: scheduler.debt_ns(now_ns, *entity),
            };
        }
        let order = gang.look(now_ns, vcpus);
        self.queue.arm(*timer, gang.next_look_ns(now_ns, *look_ns));
        let Some(order) = order else { return };
        *slices += u64::from(order == Order::Begin);
        for entity in &placement.threads {
            match order {
                Order::Begin => scheduler.boost(now_ns, *entity, &mut host.orders),
                Order::End => scheduler.end_boost(now_ns, *entity, &mut host.orders),
            }
        }
        self.deciding.push(placement.host);
    }
}
