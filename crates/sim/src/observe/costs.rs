//! What the guest's CPU time, and remedies, cost others.

use reprieve_study::Observation;
use reprieve_study::derive::put;
use reprieve_study::metric;

use crate::sched::Entity;
use crate::world::{Given, World};

/// The run time of the neighbours' vCPUs at the window's start.
#[derive(Debug)]
pub(super) struct Neighbours(Vec<(Entity, u64)>);

impl Neighbours {
    /// Starts the window.
    pub fn begin(world: &World, vcpus: &[Entity]) -> Neighbours {
        Neighbours(vcpus.iter().map(|entity| (*entity, world.thread_run_ns(0, *entity))).collect())
    }

    /// The CPU time that they had since; nothing without neighbours.
    pub fn observe(&self, out: &mut Observation, world: &World) {
        let whole_ns = out.provenance.window_ns as f64 * self.0.len() as f64;
        if whole_ns > 0.0 {
            let ran = |(entity, before_ns): &(Entity, u64)| world.thread_run_ns(0, *entity) - before_ns;
            let ran_ns: u64 = self.0.iter().map(ran).sum();
            put(out, metric::NEIGHBOUR_CPU, ran_ns as f64 / whole_ns);
        }
    }
}

/// Interrupts that the guest's vCPUs sent each other in the window.
pub(super) fn ipis(out: &mut Observation, ipis: u64) {
    if out.provenance.window_ns > 0 {
        put(out, metric::IPIS, ipis as f64 * 1e9 / out.provenance.window_ns as f64);
    }
}

/// What boosts have given since the window's start.
pub(super) fn boosts(out: &mut Observation, before: Option<Given>, after: Option<Given>) {
    let (Some(before), Some(after)) = (before, after) else { return };
    let window_ns = out.provenance.window_ns as f64;
    let vcpus = out.provenance.vcpus.len() as f64;
    if window_ns > 0.0 {
        put(out, metric::BOOSTS, (after.boosts - before.boosts) as f64 * 1e9 / window_ns);
        put(out, metric::BOOSTED_CPU, (after.run_ns - before.run_ns) as f64 / (window_ns * vcpus));
    }
}
