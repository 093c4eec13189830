//! A daemon on the host that lets descheduled vCPUs of the guest under test run, so that its grace periods can end
//! ([`reprieve_policy::boost`]). It reads the guest's RCU state and its own host's scheduler at regular times. What it
//! takes of a CPU itself is not simulated.

use reprieve_policy::boost::{Aim, Decider, Look, Order, Settings, Vcpu};

use super::{Source, World, register};
use crate::host::State;
use crate::queue::{Class, Timer};

/// The daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    guest: usize,
    decider: Decider,
    /// Expires at each look.
    timer: Timer,
    look_ns: u64,
    /// vCPUs as of the last look.
    vcpus: Vec<Vcpu>,
    /// The run time of each vCPU when its boost began.
    begun_ns: Vec<u64>,
    given: Given,
}

/// What boosts have given since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Boosts that have ended.
    pub boosts: u64,
    /// CPU time of the vCPUs within them.
    pub run_ns: u64,
}

impl World {
    /// Adds the daemon for that guest, which looks that often.
    pub fn add_boosting(&mut self, guest: usize, (aim, settings): (Aim, Settings), look_ns: u64) {
        let timer = self.queue.add(Class::HostClock);
        register(&mut self.sources, timer, Source::Boosting);
        let vcpus = self.guests[guest].vcpus().len();
        self.queue.arm(timer, self.now_ns + look_ns);
        self.boosting = Some(Daemon {
            guest,
            decider: Decider::new(aim, settings, vcpus, self.now_ns),
            timer,
            look_ns,
            vcpus: vec![Vcpu::default(); vcpus],
            begun_ns: vec![0; vcpus],
            given: Given::default(),
        });
    }

    /// What boosts have given since the start; `None` without the daemon.
    pub fn boosted(&self) -> Option<Given> {
        self.boosting.as_ref().map(|daemon| daemon.given)
    }

    /// The daemon looks, and does what the policy says.
    pub(super) fn look_and_boost(&mut self) {
        let now_ns = self.now_ns;
        let Some(daemon) = &mut self.boosting else { return };
        let Daemon { guest, decider, vcpus, begun_ns, given, .. } = daemon;
        self.queue.arm(daemon.timer, now_ns + daemon.look_ns);
        let (placement, guest) = (&self.placements[*guest], &self.guests[*guest]);
        let host = &mut self.hosts[placement.host];
        let Some(scheduler) = host.scheduler.boosting() else { return };
        let ready = guest.ready_gp_kthread();
        for (v, vcpu) in vcpus.iter_mut().enumerate() {
            let entity = placement.threads[v];
            let thread = &host.threads[entity.0 as usize];
            *vcpu = Vcpu {
                // No daemon can let a thread run that a stimulus has stopped.
                is_off: thread.state == State::Runnable && thread.paused_until_ns.is_none(),
                is_holdout: guest.rcu.is_holdout(v),
                has_kthread: ready == Some(v),
                run_ns: thread.times_at(now_ns).0,
                debt_ns: scheduler.debt_ns(now_ns, entity),
            };
        }
        let look = Look { at_ns: now_ns, open_since_ns: guest.rcu.open_since_ns(), vcpus };
        for order in decider.look(&look) {
            match *order {
                Order::Begin(v) => {
                    begun_ns[v] = vcpus[v].run_ns;
                    scheduler.boost(now_ns, placement.threads[v], &mut host.orders);
                }
                Order::End(v) => {
                    given.boosts += 1;
                    given.run_ns += vcpus[v].run_ns - begun_ns[v];
                    scheduler.end_boost(now_ns, placement.threads[v], &mut host.orders);
                }
            }
        }
        self.deciding.push(placement.host);
    }
}
