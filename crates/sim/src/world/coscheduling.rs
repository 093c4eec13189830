//! Runs the vCPUs of a guest together ([`reprieve_policy::gang`]). The host's scheduler itself looks and decides. So no
//! CPU time is charged for that, but the context switches that it causes take time.

use reprieve_policy::gang::{Gang, Order, Settings, Vcpu};

use super::{Source, World, register};
use crate::host::State;
use crate::queue::{Class, Timer};

/// The host's state for co-scheduling.
#[derive(Debug)]
pub(super) struct Coscheduling {
    guest: usize,
    gang: Gang,
    /// Expires at each look.
    timer: Timer,
    look_ns: u64,
    /// The vCPUs at the last look.
    vcpus: Vec<Vcpu>,
    slices: u64,
}

impl World {
    /// From now on this guest's vCPUs run together. The scheduler looks every `look_ns`.
    pub fn add_coscheduling(&mut self, guest: usize, settings: Settings, look_ns: u64) {
        let timer = self.queue.add(Class::HostClock);
        register(&mut self.sources, timer, Source::Coscheduling);
        self.queue.arm(timer, self.now_ns + look_ns);
        let vcpus = vec![Vcpu::default(); self.guests[guest].vcpus().len()];
        let gang = Gang::new(settings);
        self.coscheduling = Some(Coscheduling { guest, gang, timer, look_ns, vcpus, slices: 0 });
    }

    /// Number of slices that have begun. `None` without co-scheduling.
    pub fn gang_slices(&self) -> Option<u64> {
        self.coscheduling.as_ref().map(|coscheduling| coscheduling.slices)
    }

    /// Takes a look of the scheduler, and carries out the policy's order.
    pub(super) fn look_and_gather(&mut self) {
        let now_ns = self.now_ns;
        let Some(Coscheduling { guest, gang, timer, look_ns, vcpus, slices }) = &mut self.coscheduling else {
            return;
        };
        let number = *guest;
        let placement = &self.placements[number];
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
        for (v, entity) in placement.threads.iter().enumerate() {
            match order {
                Order::Begin => scheduler.boost(now_ns, *entity, &mut host.orders),
                Order::End => {
                    if let Some(granting) = &mut self.granting {
                        granting.forgo(number, v);
                    }
                    scheduler.end_boost(now_ns, *entity, &mut host.orders);
                }
            }
        }
        self.deciding.push(placement.host);
    }
}
