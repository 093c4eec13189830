//! The invariants of a credit scheduler, for tests.

use super::Credit;
use super::vcpu::State;
use crate::sched::Entity;

impl Credit {
    /// Whether its cap keeps a woken vCPU from running.
    pub fn is_parked(&self, entity: Entity) -> bool {
        self.vcpus[entity.0 as usize].state == State::Parked
    }

    /// Panics unless every invariant holds.
    pub fn check(&self) {
        let mut places = vec![0; self.vcpus.len()];
        for (cpu, queue) in self.queues.iter().enumerate() {
            let cpu = cpu as u32;
            for &entity in &queue.waiting {
                let vcpu = &self.vcpus[entity as usize];
                assert_eq!((vcpu.state, vcpu.cpu), (State::Queued, cpu), "vCPU {entity}");
                assert!(vcpu.allowed.has(cpu) && !vcpu.parked);
                places[entity as usize] += 1;
            }
            if let Some(entity) = self.pcpus[cpu].current {
                let vcpu = &self.vcpus[entity as usize];
                assert_eq!((vcpu.state, vcpu.cpu), (State::Running, cpu), "vCPU {entity}");
                assert!(vcpu.allowed.has(cpu) && !self.idlers.has(cpu));
                places[entity as usize] += 1;
            }
            assert!(self.pool.has(cpu) || queue.waiting.is_empty() && self.pcpus[cpu].current.is_none());
        }
        for (entity, vcpu) in self.vcpus.iter().enumerate() {
            let expected = matches!(vcpu.state, State::Queued | State::Running) as u32;
            assert_eq!(places[entity], expected, "vCPU {entity} is {:?}", vcpu.state);
            let domain = &self.domains[vcpu.domain];
            assert_eq!(vcpu.active, domain.active.contains(&(entity as u32)));
            assert!(vcpu.state != State::Parked || vcpu.parked);
        }
        for (number, domain) in self.domains.iter().enumerate() {
            assert_eq!(self.active.contains(&number), !domain.active.is_empty());
        }
    }
}
