//! What the guest's CPU time, and remedies, cost others.

use reprieve_study::Observation;
use reprieve_study::derive::put;
use reprieve_study::metric;

use crate::sched::Entity;
use crate::world::{Given, Granted, World};

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

/// What slices were granted, and what marks have cost, since the window's start: before and after.
pub(super) fn grants(
    out: &mut Observation,
    [before, after]: [Option<Granted>; 2],
    [marks_before_ns, marks_ns]: [u64; 2],
) {
    let (Some(before), Some(after)) = (before, after) else { return };
    let window_ns = out.provenance.window_ns as f64;
    let whole_ns = window_ns * out.provenance.vcpus.len() as f64;
    if whole_ns > 0.0 {
        put(out, metric::GRANTS, (after.slices - before.slices) as f64 * 1e9 / window_ns);
        put(out, metric::GRANTED_CPU, (after.run_ns - before.run_ns) as f64 / whole_ns);
        put(out, metric::MARKS_CPU, (marks_ns - marks_before_ns) as f64 / whole_ns);
    }
}

/// How often vCPUs began to run together since the window's start.
pub(super) fn gangs(out: &mut Observation, before: Option<u64>, after: Option<u64>) {
    let (Some(before), Some(after)) = (before, after) else { return };
    let window_ns = out.provenance.window_ns as f64;
    if window_ns > 0.0 {
        put(out, metric::GANGS, (after - before) as f64 * 1e9 / window_ns);
    }
}

/// Interrupts that the guest's vCPUs sent each other in the window.
pub(super) fn ipis(out: &mut Observation, ipis: u64) {
    if out.provenance.window_ns > 0 {
        put(out, metric::IPIS, ipis as f64 * 1e9 / out.provenance.window_ns as f64);
    }
}

/// For how long vCPUs were left alone since the window's start.
pub(super) fn left_alone(out: &mut Observation, before_ns: Option<u64>, after_ns: Option<u64>) {
    let (Some(before_ns), Some(after_ns)) = (before_ns, after_ns) else { return };
    let whole_ns = out.provenance.window_ns as f64 * out.provenance.vcpus.len() as f64;
    if whole_ns > 0.0 {
        put(out, metric::LEFT_ALONE, (after_ns - before_ns) as f64 / whole_ns);
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
        put(out, metric::BOOST_CPU, (after.daemon_ns - before.daemon_ns) as f64 / window_ns);
    }
}
