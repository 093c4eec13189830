//! Between pCPUs: where a vCPU should run, its migration, and stealing.
//!
//! As on one socket without hyper-threads: all pCPUs are equally near.

use super::vcpu::State;
use super::{Credit, Wake};
use crate::sched::Orders;
use crate::sched::xen::{Kind, Priority};

impl Credit {
    /// The pCPU on which a vCPU that is in no queue had best run: where it is, if nobody waits there; else an idle one.
    pub(super) fn better_cpu(&self, entity: u32) -> u32 {
        let vcpu = &self.vcpus[entity as usize];
        let here = vcpu.allowed.has(vcpu.cpu);
        if here && self.queues[vcpu.cpu as usize].waiting.is_empty() {
            return vcpu.cpu;
        }
        let next = |cpus| vcpu.allowed.next_with(cpus, vcpu.cpu);
        let elsewhere = || if here { Some(vcpu.cpu) } else { next(&self.pool) };
        next(&self.idlers).or_else(elsewhere).unwrap_or(vcpu.cpu)
    }

    /// Moves a vCPU that left its pCPU with a mark, and wakes it there.
    pub(super) fn migrate(&mut self, now_ns: u64, entity: u32, orders: &mut Orders) {
        let cpu = self.better_cpu(entity);
        let vcpu = &mut self.vcpus[entity as usize];
        (vcpu.migrating, vcpu.cpu) = (false, cpu);
        match (vcpu.state, vcpu.parked) {
            (State::Blocked, _) => {}
            (_, true) => vcpu.state = State::Parked,
            _ => self.enqueue(now_ns, entity, Wake::Migration, orders),
        }
    }

    /// Takes the first vCPU with a priority strictly above that from the queue of another pCPU that does not idle, in turn.
    pub(super) fn steal(&mut self, now_ns: u64, cpu: u32, above: Priority) -> Option<u32> {
        let mut peer = cpu;
        loop {
            peer = self.pool.next_with(&self.pool, peer).filter(|&peer| peer != cpu)?;
            if self.pcpus[peer].current.is_none() {
                continue; // It is about to look into its own queue.
            }
            let vcpus = &mut self.vcpus;
            let queue = &mut self.queues[peer as usize];
            let higher =
                queue.waiting.iter().take_while(|&&entity| vcpus[entity as usize].priority() > above);
            let found = higher.copied().find(|&entity| vcpus[entity as usize].allowed.has(cpu));
            if let Some(entity) = found {
                queue.remove(entity);
                vcpus[entity as usize].cpu = cpu;
                self.log.push(now_ns, cpu, entity, Kind::Stolen);
                return Some(entity);
            }
        }
    }
}
