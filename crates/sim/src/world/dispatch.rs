//! Carries out the requests of guests and the orders of schedulers: interrupts for vCPUs, and switches of threads on
//! pCPUs.

use super::{Source, World, register};
use crate::guest::network::Packet;
use crate::guest::vcpu::Presence;
use crate::guest::{Clock, Request};
use crate::host::{Body, State};
use crate::queue::Class;
use crate::sched::{Cpu, Entity};
use reprieve_study::grace_period::Span;

impl World {
    /// Carries out all requests and orders, if there are any.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !(self.talking.is_empty() && self.deciding.is_empty()) {
            self.carry_out_all();
        }
    }

    /// Requests come before orders, because a scheduler must decide on the present state.
    fn carry_out_all(&mut self) {
        loop {
            if let Some(guest) = self.talking.pop() {
                self.guests[guest].take_requests(&mut self.requests);
                let mut requests = std::mem::take(&mut self.requests);
                for request in requests.drain(..) {
                    self.carry_out(guest, request);
                }
                self.requests = requests;
            } else if let Some(host) = self.deciding.last().copied() {
                if !self.carry_out_order(host) {
                    self.deciding.pop();
                }
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, guest: usize, request: Request) {
        let v = match request {
            Request::Kick(v) | Request::Halt(v) | Request::Unlocked(v) => v,
            Request::Answer(packet) => return self.answer(guest, packet),
            Request::Disk => return self.take_disk_requests(guest),
        };
        let placement = &self.placements[guest];
        let (number, entity) = (placement.host, placement.threads[v]);
        let presence = self.guests[guest].vcpus()[v].presence;
        let mut clock = Clock { now_ns: self.now_ns, queue: &mut self.queue, work: &mut self.work };
        let host = &mut self.hosts[number];
        let thread = &host.threads[entity.0 as usize];
        if self.deciding.last() != Some(&number) {
            self.deciding.push(number);
        }
        match request {
            Request::Kick(_) => match presence {
                Presence::Running => {
                    self.guests[guest].go_on(&mut clock, v);
                    self.talking.push(guest);
                }
                Presence::Halted if self.guests[guest].stays_paused(v) => {}
                Presence::Halted if self.guests[guest].is_paused(v) => self.unpause(guest, v),
                Presence::Halted => {
                    debug_assert_eq!(thread.state, State::Blocked);
                    self.guests[guest].unhalt(&mut clock, v);
                    if thread.paused_until_ns.is_none() {
                        host.wake(self.now_ns, entity, None);
                    } else {
                        host.threads[entity.0 as usize].become_state(self.now_ns, State::Runnable);
                    }
                }
                Presence::Descheduled => {}
            },
            Request::Halt(_) => {
                match self.io.pause_keeps_ns().filter(|_| self.guests[guest].is_paused(v)) {
                    Some(keeps_ns) => host.pause_running(self.now_ns, thread.pcpu, keeps_ns),
                    None => host.block_running(self.now_ns, thread.pcpu),
                }
                self.recording.idle(self.now_ns, entity);
                self.end_granted(guest, v);
            }
            Request::Unlocked(_) => {
                let pcpu = thread.pcpu;
                if thread.state == State::Running && std::mem::take(&mut host.pcpus[pcpu].switch_after_unlock)
                {
                    host.orders.resched.push(Cpu(pcpu as u32));
                }
            }
            Request::Answer(_) | Request::Disk => {}
        }
    }

    /// Passes an answer to the guest's client.
    fn answer(&mut self, guest: usize, packet: Packet) {
        let Some(client) = self.clients.iter_mut().find(|client| client.guest == guest) else { return };
        let (inside, outside_ns) = client.answered(self.now_ns, packet, &mut self.queue);
        self.guests[guest].latencies_mut().add(inside, outside_ns);
    }

    /// Carries out one order of a host's scheduler. Returns whether there was one.
    fn carry_out_order(&mut self, number: usize) -> bool {
        let orders = &mut self.hosts[number].orders;
        if let Some((timer, at_ns)) = orders.arm.pop() {
            self.arm_scheduler_timer(number, timer, at_ns);
        } else if let Some(cpu) = orders.ticks.pop() {
            self.hosts[number].keep_tick(self.now_ns, cpu.0 as usize, &mut self.queue);
        } else if let Some(cpu) = orders.resched.pop() {
            self.switch(number, cpu.0 as usize);
        } else {
            return false;
        }
        true
    }

    fn arm_scheduler_timer(&mut self, number: usize, timer: u32, at_ns: u64) {
        let host = &mut self.hosts[number];
        while host.timers.len() <= timer as usize {
            let added = self.queue.add(Class::HostClock);
            let source = Source::Scheduler { host: number as u32, number: host.timers.len() as u32 };
            register(&mut self.sources, added, source);
            host.timers.push(added);
        }
        self.queue.arm(host.timers[timer as usize], at_ns);
    }

    /// Asks the scheduler for the next thread of a pCPU, and switches to it.
    fn switch(&mut self, number: usize, pcpu: usize) {
        let now_ns = self.now_ns;
        let host = &self.hosts[number];
        let previous = host.pcpus[pcpu].running;
        let spared = host.spec.spare_lock_holders
            && previous.is_some_and(|entity| self.guests_lock_held(number, entity));
        let host = &mut self.hosts[number];
        host.pcpus[pcpu].switch_after_unlock = spared;
        if spared {
            return;
        }
        if let Some(entity) = previous
            && host.threads[entity.0 as usize].paused_until_ns.is_some()
        {
            self.take_off(number, pcpu, entity);
            let host = &mut self.hosts[number];
            host.scheduler.block(now_ns, Cpu(pcpu as u32), &mut host.orders);
            host.pcpus[pcpu].running = None;
        }
        let previous = self.hosts[number].pcpus[pcpu].running;
        if let Some(entity) = previous {
            self.may_grant(number, pcpu, entity);
        }
        let host = &mut self.hosts[number];
        let next = host.scheduler.pick(now_ns, Cpu(pcpu as u32), &mut host.orders);
        if next == previous {
            return host.keep_tick(now_ns, pcpu, &mut self.queue);
        }
        if let Some(entity) = previous {
            self.take_off(number, pcpu, entity);
        }
        self.hosts[number].pcpus[pcpu].running = next;
        if let Some(entity) = next {
            self.put_on(number, pcpu, entity);
        }
        self.hosts[number].keep_tick(now_ns, pcpu, &mut self.queue);
    }

    fn guests_lock_held(&self, host: usize, entity: Entity) -> bool {
        match self.hosts[host].threads[entity.0 as usize].body {
            Body::Vcpu { guest, vcpu } => self.guests[guest].holds_lock(vcpu),
            _ => false,
        }
    }

    /// A running thread loses its pCPU.
    fn take_off(&mut self, number: usize, pcpu: usize, entity: Entity) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[number];
        let thread = &mut host.threads[entity.0 as usize];
        let since_ns = thread.become_state(now_ns, State::Runnable);
        thread.preempted = true;
        host.pcpus[pcpu].last = Some(entity);
        host.pcpus[pcpu].busy_ns += now_ns - since_ns;
        match thread.body {
            Body::Vcpu { guest, vcpu } => {
                if let Some(slice) = thread.micro_slice {
                    self.queue.arm(slice.timer, now_ns + (slice.every_ns - slice.run_ns).max(1));
                }
                let mut clock = Clock { now_ns, queue: &mut self.queue, work: &mut self.work };
                self.guests[guest].leave(&mut clock, vcpu);
                self.talking.push(guest);
                if self.io.pause_keeps_ns().is_some() && !host.is_owed(now_ns, entity) {
                    self.guests[guest].arm_pausing(vcpu, false);
                }
            }
            Body::Noise { .. } | Body::Emulator(_) | Body::Booster => {
                thread.left_ns -= (now_ns - since_ns).min(thread.left_ns);
                self.queue.disarm(thread.timer);
            }
            Body::Busy | Body::Spike { .. } => {}
        }
    }

    /// A runnable thread gets a pCPU.
    fn put_on(&mut self, number: usize, pcpu: usize, entity: Entity) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[number];
        let cold = host.pcpus[pcpu].last.is_some_and(|last| last != entity);
        let overhead_ns = host.spec.switch_ns + if cold { host.spec.cold_cache_ns } else { 0 };
        let thread = &mut host.threads[entity.0 as usize];
        thread.pcpu = pcpu;
        let since_ns = thread.become_state(now_ns, State::Running);
        let preempted = std::mem::take(&mut thread.preempted);
        match &thread.body {
            Body::Vcpu { guest, vcpu } => {
                let (guest, vcpu) = (*guest, *vcpu);
                if let Some(granting) = &mut self.granting {
                    granting.begin_stay(guest, vcpu);
                }
                if let Some(slice) = thread.micro_slice {
                    self.queue.arm(slice.timer, now_ns + slice.run_ns);
                }
                if thread.paused_until_ns.is_some() {
                    host.orders.resched.push(Cpu(pcpu as u32));
                }
                let wait = Span::new(since_ns, now_ns);
                if guest == 0 && vcpu == 0 {
                    self.recording.end_wait(&mut *host.scheduler, wait, preempted, Cpu(pcpu as u32));
                }
                if guest == 0 && preempted {
                    self.recording.was_descheduled(vcpu, wait);
                }
                let mut clock = Clock { now_ns, queue: &mut self.queue, work: &mut self.work };
                self.guests[guest].enter(&mut clock, vcpu, overhead_ns);
                self.talking.push(guest);
            }
            Body::Noise { .. } | Body::Emulator(_) | Body::Booster => {
                self.queue.arm(thread.timer, now_ns + thread.left_ns.max(1))
            }
            Body::Spike { until_ns } if now_ns >= *until_ns => self.queue.arm(thread.timer, now_ns),
            Body::Busy | Body::Spike { .. } => {}
        }
    }
}
