//! Models a guest whose scheduler keeps tasks off vCPUs with steal ([`reprieve_policy::steady`]). The scheduler looks
//! at regular times as a part of its ticks, so no CPU time is charged for that. Each move of a task costs as much as
//! any other move.

use reprieve_policy::steady::{Settings, Steady};

use super::{Source, World, register};
use crate::guest::Clock;
use crate::queue::{Class, Timer};

/// State of the guest's scheduler.
#[derive(Debug)]
pub(super) struct Steadying {
    guest: usize,
    steady: Steady,
    /// Expires at each look.
    timer: Timer,
    look_ns: u64,
    /// The vCPUs in use, a bit for each, and the time since when.
    used: u64,
    since_ns: u64,
    /// Total time for which vCPUs were avoided, up to `since_ns`.
    left_ns: u64,
}

impl Steadying {
    /// Total time for which vCPUs were avoided.
    fn left_ns(&self, now_ns: u64, vcpus: usize) -> u64 {
        let left = vcpus as u64 - u64::from(self.used.count_ones());
        self.left_ns + left * (now_ns - self.since_ns)
    }
}

impl World {
    /// From now on this guest's scheduler keeps tasks off vCPUs with steal. It looks every `look_ns`.
    pub fn add_steadying(&mut self, guest: usize, settings: Settings, look_ns: u64) {
        let timer = self.queue.add(Class::HostClock);
        register(&mut self.sources, timer, Source::Steadying);
        self.queue.arm(timer, self.now_ns + look_ns);
        let stolen_ns = self.stolen_ns(guest);
        let used = u64::MAX >> (64 - stolen_ns.len());
        let steady = Steady::new(settings, &stolen_ns, self.now_ns);
        let since_ns = self.now_ns;
        self.steadying = Some(Steadying { guest, steady, timer, look_ns, used, since_ns, left_ns: 0 });
    }

    /// Total time for which vCPUs were avoided since the start. `None` without this remedy.
    pub fn left_alone_ns(&self) -> Option<u64> {
        let steadying = self.steadying.as_ref()?;
        Some(steadying.left_ns(self.now_ns, self.guests[steadying.guest].vcpus().len()))
    }

    /// Each vCPU's steal as the guest knows it. A descheduled vCPU reports its steal only when it runs again.
    fn stolen_ns(&self, guest: usize) -> Vec<u64> {
        self.guests[guest].vcpus().iter().map(|vcpu| vcpu.times.stolen_ns).collect()
    }

    /// Takes a look of the guest's scheduler, and carries out the policy's answer.
    pub(super) fn look_for_steady(&mut self) {
        let Some(guest) = self.steadying.as_ref().map(|steadying| steadying.guest) else { return };
        let stolen_ns = self.stolen_ns(guest);
        let Some(steadying) = &mut self.steadying else { return };
        self.queue.arm(steadying.timer, self.now_ns + steadying.look_ns);
        let used = steadying.steady.look(self.now_ns, &stolen_ns);
        if used == steadying.used {
            return;
        }
        steadying.left_ns = steadying.left_ns(self.now_ns, stolen_ns.len());
        (steadying.used, steadying.since_ns) = (used, self.now_ns);
        let mut clock = Clock { now_ns: self.now_ns, queue: &mut self.queue, work: &mut self.work };
        self.guests[guest].use_vcpus(&mut clock, used);
        self.talking.push(guest);
    }
}
