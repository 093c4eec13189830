//! Decisions: what a pCPU runs next, and for how long.

use super::Credit2;
use super::params::{COMPENSATION_NS, CREDIT_NS, LEAST_NS, RESIST_NS};
use super::runqueue::{State, reset_times};
use crate::sched::Orders;
use crate::sched::xen::Kind;

impl Credit2 {
    /// Decides what a pCPU of that runqueue runs.
    pub(super) fn decide(&mut self, now_ns: u64, queue: usize, cpu: u32, orders: &mut Orders) {
        self.queues[queue].tickled.remove(cpu);
        self.burn(now_ns, cpu);
        let current = self.pcpus[cpu].current;
        let (next, skipped) = self.candidate(now_ns, queue, cpu);
        if let Some(current) = current {
            self.vcpus[current as usize].yields = false;
        }
        match next {
            Some(next) => {
                if current != Some(next) {
                    self.take(now_ns, queue, cpu, next);
                }
                if !skipped && self.vcpus[next as usize].credit <= 0 {
                    self.reset_credit(now_ns, queue, cpu, next);
                }
                let kind = if current == Some(next) { Kind::GoesOn } else { Kind::Runs };
                self.log.push(now_ns, cpu, next, kind);
                self.queues[queue].idle.remove(cpu);
            }
            None => self.queues[queue].idle.insert(cpu),
        }
        let for_ns = next.map(|next| self.runtime_ns(now_ns, queue, cpu, next));
        self.pcpus.give(now_ns, cpu, next, for_ns, orders);
        // Only now is the old one in the queue: the timer above was set without it.
        if let Some(current) = current.filter(|_| current != next) {
            self.enqueue(now_ns, current, orders);
        }
    }

    /// What should run there: the current one if its rate limit or its credit says so, else the first in the queue that may
    /// run there. And whether others were passed over.
    fn candidate(&mut self, now_ns: u64, queue: usize, cpu: u32) -> (Option<u32>, bool) {
        let current = self.pcpus[cpu].current;
        let yields = current.is_some_and(|current| self.vcpus[current as usize].yields);
        let waiting = &self.queues[queue].waiting;
        if let Some(current) = current
            && !yields
            && self.pcpus.ran_ns(now_ns, cpu) < self.params.ratelimit_ns
        {
            if !waiting.is_empty() {
                self.log.push(now_ns, cpu, current, Kind::RateLimited);
            }
            return (Some(current), false);
        }
        let credit = current.map_or(i64::MIN / 2, |current| self.vcpus[current as usize].credit);
        let mut skipped = false;
        for &other in waiting {
            let vcpu = &self.vcpus[other as usize];
            if !vcpu.allowed.has(cpu) || vcpu.cpu != cpu && credit + RESIST_NS > vcpu.credit {
                skipped = true;
                continue;
            }
            let next = if yields || vcpu.credit > credit { Some(other) } else { current };
            return (next, skipped);
        }
        (current, skipped)
    }

    /// Takes one from the queue, to run there.
    fn take(&mut self, now_ns: u64, queue: usize, cpu: u32, next: u32) {
        self.queues[queue].waiting.retain(|&other| other != next);
        let vcpu = &mut self.vcpus[next as usize];
        (vcpu.state, vcpu.charged_to_ns) = (State::Running, now_ns);
        if vcpu.cpu != cpu {
            vcpu.cpu = cpu;
            vcpu.credit += COMPENSATION_NS;
            self.log.push(now_ns, cpu, next, Kind::Stolen);
        }
    }

    /// All vCPUs of the runqueue get new credit, because the next one to run has none left.
    fn reset_credit(&mut self, now_ns: u64, queue: usize, cpu: u32, next: u32) {
        let times = reset_times(self.vcpus[next as usize].credit);
        for running in self.queues[queue].cpus.iter().filter(|&other| other != cpu) {
            if let Some(current) = self.pcpus[running].current {
                let most_weight = self.queues[queue].most_weight;
                self.vcpus[current as usize].burn(now_ns, most_weight);
            }
        }
        for &member in &self.queues[queue].members {
            self.vcpus[member as usize].reset(times);
            self.log.push(now_ns, cpu, member, Kind::CreditReset);
        }
    }

    /// How long `next` runs before the pCPU decides again: until it has as little credit as the first that waits, or none;
    /// but neither very short nor very long.
    fn runtime_ns(&self, now_ns: u64, queue: usize, cpu: u32, next: u32) -> u64 {
        let vcpu = &self.vcpus[next as usize];
        let queue = &self.queues[queue];
        let first = queue.waiting.first().map_or(0, |&first| self.vcpus[first as usize].credit);
        let time_ns = vcpu.time_ns(vcpu.credit - first.max(0), queue.most_weight);
        let mut limit_ns = self.params.ratelimit_ns as i64;
        if self.pcpus[cpu].current == Some(next) {
            limit_ns -= self.pcpus.ran_ns(now_ns, cpu) as i64;
        }
        time_ns.min(CREDIT_NS).max(limit_ns.max(LEAST_NS)) as u64
    }
}
