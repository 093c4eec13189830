//! A daemon on the host that lets descheduled vCPUs of the guest under test run, so that its grace periods can end
//! ([`reprieve_policy::boost`]). It is an urgent thread of the host: each look at the guest's RCU state and at the host's
//! scheduler takes CPU time on some pCPU, and what it finds at the look's end is what it acts on.

use reprieve_policy::boost::{Aim, Decider, Look, Order, Settings, Ticks, Vcpu};

use super::World;
use crate::host::{Body, State};
use crate::sched::{Cpu, Entity, Spec};

/// The daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    guest: usize,
    decider: Decider,
    settings: Settings,
    /// Its thread.
    entity: Entity,
    times: Times,
    /// The start of the open grace period, and when a look first saw it.
    open: Option<(u64, u64)>,
    ticks: Ticks,
    /// vCPUs as of the last look.
    vcpus: Vec<Vcpu>,
    /// The run time of each vCPU when its boost began.
    begun_ns: Vec<u64>,
    given: Given,
}

/// When the daemon looks, and what a look costs.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time between two looks.
    pub every_ns: u64,
    /// CPU time of a look; 0 for looks that need no pCPU.
    pub cost_ns: u64,
}

/// What boosts have given since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Boosts that have ended.
    pub boosts: u64,
    /// CPU time of the vCPUs within them.
    pub run_ns: u64,
    /// CPU time of the daemon.
    pub daemon_ns: u64,
}

impl World {
    /// Adds the daemon for that guest.
    pub fn add_boosting(&mut self, guest: usize, (aim, settings): (Aim, Settings), times: Times) {
        let vcpus = self.guests[guest].vcpus().len();
        let spec = Spec { urgent: true, ..Spec::default() };
        let entity = self.add_thread(self.placements[guest].host, Body::Booster, &spec);
        self.boosting = Some(Daemon {
            guest,
            decider: Decider::new(aim, settings, vcpus, self.now_ns),
            settings,
            entity,
            times,
            open: None,
            ticks: Ticks::default(),
            vcpus: vec![Vcpu::default(); vcpus],
            begun_ns: vec![0; vcpus],
            given: Given::default(),
        });
    }

    /// What boosts have given since the start; `None` without the daemon.
    pub fn boosted(&self) -> Option<Given> {
        let daemon = self.boosting.as_ref()?;
        let daemon_ns = self.thread_run_ns(self.placements[daemon.guest].host, daemon.entity);
        Some(Given { daemon_ns, ..daemon.given })
    }

    /// The daemon's timer expires: it wakes to look, or its look is done.
    pub(super) fn booster_timer(&mut self, number: usize, entity: Entity) {
        let Some(Daemon { times, .. }) = self.boosting else { return };
        let host = &mut self.hosts[number];
        let thread = &mut host.threads[entity.0 as usize];
        let (state, pcpu) = (thread.state, thread.pcpu);
        if state == State::Blocked && times.cost_ns > 0 {
            thread.left_ns = times.cost_ns;
            return host.wake(self.now_ns, entity, Some(Cpu(pcpu as u32)));
        }
        let next_ns = self.look_and_boost().unwrap_or(self.now_ns + times.every_ns);
        let host = &mut self.hosts[number];
        self.queue.arm(host.threads[entity.0 as usize].timer, next_ns);
        if state == State::Running {
            host.block_running(self.now_ns, pcpu);
        }
    }

    /// The daemon looks, and does what the policy says. Returns when to look again.
    fn look_and_boost(&mut self) -> Option<u64> {
        let now_ns = self.now_ns;
        let Daemon {
            guest,
            decider,
            settings,
            entity: self_entity,
            times,
            open,
            ticks,
            vcpus,
            begun_ns,
            given,
        } = self.boosting.as_mut()?;
        let number = *guest;
        let (placement, guest) = (&self.placements[number], &self.guests[number]);
        let host = &mut self.hosts[placement.host];
        let scheduler = host.scheduler.boosting()?;
        let ready = guest.ready_gp_kthread();
        let own = &host.threads[self_entity.0 as usize];
        let look_since_ns = if own.state == State::Running { own.since_ns } else { now_ns };
        for (v, vcpu) in vcpus.iter_mut().enumerate() {
            let entity = placement.threads[v];
            let thread = &host.threads[entity.0 as usize];
            *vcpu = Vcpu {
                is_holdout: guest.rcu.is_holdout(v),
                has_kthread: ready == Some(v),
                may_hold_lock: guest.holds_lock(v),
                run_ns: thread.times_at(now_ns).0,
                debt_ns: scheduler.debt_ns(now_ns, entity),
            };
        }
        *open = seen(*open, guest.rcu.open_since_ns(), now_ns);
        ticks.look(now_ns, guest.ticks());
        let open_since_ns = open.map(|(_, seen_ns)| seen_ns);
        let tick_ns = ticks.to_meet_ns(now_ns, settings.cap_ns);
        let look = Look { at_ns: now_ns, open_since_ns, tick_ns, vcpus };
        let threads = &host.threads;
        // No daemon can let a thread run that a stimulus has stopped; and who is off since the look began may be so
        // because of it.
        let is_off = |v: usize| {
            let thread = &threads[placement.threads[v].0 as usize];
            thread.state == State::Runnable
                && thread.paused_until_ns.is_none()
                && thread.since_ns < look_since_ns
        };
        for order in decider.look(&look, is_off) {
            match *order {
                Order::Begin(v) => {
                    begun_ns[v] = vcpus[v].run_ns;
                    scheduler.boost(now_ns, placement.threads[v], &mut host.orders);
                }
                Order::End(v) => {
                    given.boosts += 1;
                    given.run_ns += vcpus[v].run_ns - begun_ns[v];
                    if let Some(granting) = &mut self.granting {
                        granting.forgo(number, v);
                    }
                    scheduler.end_boost(now_ns, placement.threads[v], &mut host.orders);
                }
            }
        }
        Some(decider.next_look_ns(now_ns, times.every_ns))
    }
}

/// The start of the open grace period, and when a look first saw it: nobody tells a daemon when a grace period began.
fn seen(last: Option<(u64, u64)>, since_ns: Option<u64>, now_ns: u64) -> Option<(u64, u64)> {
    since_ns.map(|since_ns| match last {
        Some((last_ns, seen_ns)) if last_ns == since_ns => (last_ns, seen_ns),
        _ => (since_ns, now_ns),
    })
}
