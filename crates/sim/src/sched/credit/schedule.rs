//! Decisions: what a pCPU runs next, and for how long.

use super::Credit;
use super::interrupt::TIMER_SLOP_NS;
use super::params::Rearm;
use super::vcpu::State;
use crate::sched::Orders;
use crate::sched::xen::{Kind, Priority};

impl Credit {
    /// Decides what the pCPU runs.
    pub(super) fn decide(&mut self, now_ns: u64, cpu: u32, orders: &mut Orders) {
        let current = self.pcpus[cpu].current;
        if let Some(current) = current {
            if let Some(for_ns) = self.rate_limited(now_ns, cpu, current) {
                self.vcpus[current as usize].burn(now_ns);
                self.log.push(now_ns, cpu, current, Kind::GoesOn);
                return self.pcpus.give(now_ns, cpu, Some(current), Some(for_ns), orders);
            }
            self.put_back(now_ns, current);
        }
        let next = self.next(now_ns, cpu);
        match next {
            Some(next) => {
                self.vcpus[next as usize].enter(now_ns);
                let kind = if current == Some(next) { Kind::GoesOn } else { Kind::Runs };
                self.log.push(now_ns, cpu, next, kind);
                self.idlers.remove(cpu);
            }
            None => self.idlers.insert(cpu),
        }
        let slice_ns = next.map(|_| self.params.slice_ns);
        self.pcpus.give(now_ns, cpu, next, slice_ns, orders);
        if let Some(current) = current {
            let vcpu = &mut self.vcpus[current as usize];
            vcpu.yields = false;
            if vcpu.migrating {
                self.migrate(now_ns, current, orders);
            }
        }
    }

    /// How long the current vCPU goes on because it has run for less than the rate limit; none if it does not.
    fn rate_limited(&mut self, now_ns: u64, cpu: u32, current: u32) -> Option<u64> {
        let vcpu = &self.vcpus[current as usize];
        let (ran_ns, limit_ns) = (self.pcpus.ran_ns(now_ns, cpu), self.params.ratelimit_ns);
        if !vcpu.may_go_on() || vcpu.yields || ran_ns >= limit_ns {
            return None;
        }
        if !self.queues[cpu as usize].waiting.is_empty() {
            self.log.push(now_ns, cpu, current, Kind::RateLimited);
        }
        Some(match self.params.rearm {
            Rearm::Whole => limit_ns,
            Rearm::Left => (limit_ns - ran_ns).max(TIMER_SLOP_NS),
        })
    }

    /// The current vCPU goes back into its queue, if it may go on; it stands behind its equals.
    fn put_back(&mut self, now_ns: u64, current: u32) {
        let vcpu = &mut self.vcpus[current as usize];
        vcpu.leave(now_ns, if vcpu.parked { State::Parked } else { State::Queued });
        if vcpu.may_go_on() {
            let cpu = vcpu.cpu as usize;
            self.queues[cpu].insert(&self.vcpus, current);
        }
    }

    /// The head of the queue; or, if that is OVER or there is none, a vCPU of strictly higher priority from another queue.
    fn next(&mut self, now_ns: u64, cpu: u32) -> Option<u32> {
        let head = self.queues[cpu as usize].waiting.first().copied();
        let priority = head.map_or(Priority::Idle, |head| self.vcpus[head as usize].priority());
        if priority <= Priority::Over
            && let Some(stolen) = self.steal(now_ns, cpu, priority)
        {
            return Some(stolen);
        }
        self.queues[cpu as usize].waiting.retain(|&other| Some(other) != head);
        head
    }
}
