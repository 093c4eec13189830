//! Gives a vCPU an additional slice if it would be descheduled within a marked read-side section
//! ([`reprieve_policy::grant`]).
//!
//! The slice is a boost of the running vCPU, so its time is charged like all run time. It ends by time, or when the
//! vCPU halts.

use reprieve_policy::grant::{Settings, Vcpu};

use super::{Source, World, register};
use crate::host::Body;
use crate::queue::{Class, Timer};
use crate::sched::{Cpu, Entity};

/// The host's state for additional slices.
#[derive(Debug)]
pub(super) struct Granting {
    guest: usize,
    settings: Settings,
    stays: Vec<Stay>,
    given: Granted,
}

/// A vCPU's stay on a pCPU.
#[derive(Debug)]
struct Stay {
    /// Expires at the end of the slice.
    timer: Timer,
    has_had_one: bool,
    /// While a slice lasts, the vCPU's run time when it began.
    began_ns: Option<u64>,
}

/// The slices granted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Granted {
    /// Number of slices that have ended.
    pub slices: u64,
    /// CPU time of the vCPUs within these slices.
    pub run_ns: u64,
}

impl Granting {
    /// A vCPU gets a pCPU: its stay begins.
    pub fn begin_stay(&mut self, guest: usize, v: usize) {
        if guest == self.guest {
            let stay = &mut self.stays[v];
            // A vCPU that an urgent thread has displaced is still within its slice when it comes back.
            stay.has_had_one = stay.began_ns.is_some();
        }
    }

    /// A vCPU's boost or gang slice ends: that had its own limit, so no granted slice follows it.
    pub fn forgo(&mut self, guest: usize, v: usize) {
        if guest == self.guest {
            self.stays[v].has_had_one = true;
        }
    }
}

impl World {
    /// From now on this guest's vCPUs may get additional slices.
    pub fn add_granting(&mut self, guest: usize, settings: Settings) {
        let number = guest as u32;
        let stays = (0..self.guests[guest].vcpus().len() as u32).map(|vcpu| {
            let timer = self.queue.add(Class::HostClock);
            register(&mut self.sources, timer, Source::Granted { guest: number, vcpu });
            Stay { timer, has_had_one: false, began_ns: None }
        });
        let stays = stays.collect();
        self.granting = Some(Granting { guest, settings, stays, given: Granted::default() });
    }

    /// The slices granted since the start. `None` without this remedy.
    pub fn granted(&self) -> Option<Granted> {
        self.granting.as_ref().map(|granting| granting.given)
    }

    /// Called when a pCPU is about to decide what runs next. If it would deschedule the vCPU `entity`, the vCPU may get
    /// an additional slice instead.
    pub(super) fn may_grant(&mut self, number: usize, pcpu: usize, entity: Entity) {
        let Some(granting) = &mut self.granting else { return };
        let host = &mut self.hosts[number];
        let thread = &host.threads[entity.0 as usize];
        let Body::Vcpu { guest, vcpu } = thread.body else { return };
        if guest != granting.guest {
            return;
        }
        let run_ns = thread.times_at(self.now_ns).0;
        let stay = &mut granting.stays[vcpu];
        let Some(scheduler) = host.scheduler.boosting() else { return };
        let asks = Vcpu {
            is_marked: self.guests[guest].is_marked(vcpu),
            has_had_one: stay.has_had_one,
            debt_ns: scheduler.debt_ns(self.now_ns, entity),
        };
        if granting.settings.grants(&asks) && scheduler.gives_way(self.now_ns, Cpu(pcpu as u32)) {
            (stay.has_had_one, stay.began_ns) = (true, Some(run_ns));
            scheduler.boost(self.now_ns, entity, &mut host.orders);
            self.queue.arm(stay.timer, self.now_ns + granting.settings.slice_ns.max(1));
        }
    }

    /// Ends a granted slice, if one is under way.
    pub(super) fn end_granted(&mut self, guest: usize, v: usize) {
        let Some(granting) = self.granting.as_mut().filter(|granting| granting.guest == guest) else {
            return;
        };
        let Some(began_ns) = granting.stays[v].began_ns.take() else { return };
        self.queue.disarm(granting.stays[v].timer);
        let placement = &self.placements[guest];
        let (number, entity) = (placement.host, placement.threads[v]);
        let host = &mut self.hosts[number];
        granting.given.slices += 1;
        granting.given.run_ns += host.threads[entity.0 as usize].times_at(self.now_ns).0 - began_ns;
        if let Some(scheduler) = host.scheduler.boosting() {
            scheduler.end_boost(self.now_ns, entity, &mut host.orders);
        }
        self.deciding.push(number);
    }
}
