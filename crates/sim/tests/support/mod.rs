//! What the integration tests share: scenarios in TOML to observations, what stands in their traces, and worlds made by
//! hand.

#![allow(dead_code, reason = "each test uses its part")]

use reprieve_sim::ground::{self, Tapes};
use reprieve_sim::guest::costs::Costs;
use reprieve_sim::guest::memory::{self, Memory};
use reprieve_sim::guest::rcu;
use reprieve_sim::guest::{Guest, Spec};
use reprieve_sim::host::{Host, HostSpec};
use reprieve_sim::world::World;
use reprieve_sim::{SimError, sched};
use reprieve_study::ground::{Finished, Progress};
use reprieve_study::scenario::{BadScenario, Spinlocks};
use reprieve_study::timeline::Events;
use reprieve_study::{Observation, Scenario, Span, overrides};

/// Nobody is told how things go.
pub struct Silence;

impl Progress for Silence {
    fn preparing(&mut self, _what: &str) {}
    fn running(&mut self, _number: usize, _total: usize, _condition: &str, _stage: &str) {}
    fn ended(&mut self, _number: usize, _total: usize, _observation: &Observation) {}
    fn warning(&mut self, _text: &str) {}
}

/// Reads a scenario. Its name and title do not matter.
pub fn read(text: &str) -> Result<Scenario, BadScenario> {
    overrides::read(&format!("name = 't'\ntitle = 't'\n{text}"), None, &[])
}

/// Runs a scenario on that many threads.
pub fn run_on(jobs: usize, text: &str) -> Finished<SimError> {
    let scenario = read(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    ground::run(scenario, &Tapes::new(), jobs, &|| false, &mut Silence)
}

/// Runs a scenario whose runs all succeed.
pub fn run(text: &str) -> Vec<Observation> {
    let finished = run_on(2, text);
    assert!(finished.error.is_none(), "{}\n{text}", finished.error.unwrap());
    finished.observations
}

/// Runs a scenario of one run.
pub fn run_one(text: &str) -> Observation {
    let [observation] = <[Observation; 1]>::try_from(run(text)).expect("the scenario has one run");
    observation
}

/// The slices of a track.
pub fn slices(of: &Observation, track: &str) -> Vec<Span> {
    let trace = of.trace.as_ref().expect("the first run of a condition has a trace");
    let found = trace.tracks.iter().find(|other| other.name == track);
    match &found.unwrap_or_else(|| panic!("no track {track}")).events {
        Events::Slices(slices) => slices.iter().map(|(span, _)| *span).collect(),
        Events::Counter(_) => panic!("{track} is a counter"),
    }
}

/// When a vCPU was descheduled, for at least one look.
pub fn descheduled(of: &Observation, vcpu: usize) -> Vec<Span> {
    slices(of, &format!("vCPU {vcpu}"))
}

/// The grace periods.
pub fn grace_periods(of: &Observation) -> Vec<Span> {
    slices(of, "grace periods")
}

/// A metric that must be there.
pub fn metric(of: &Observation, id: &str) -> f64 {
    *of.metrics.get(id).unwrap_or_else(|| panic!("no {id} among {:?}", of.metrics.keys()))
}

/// A started world of one guest made by hand, so that it runs what `add` adds and nothing else; one vCPU a pCPU.
pub fn world_of(vcpus: usize, hz: u64, add: impl FnOnce(&mut Guest)) -> World {
    let costs = Costs::at_speed(1_000);
    let mut world = World::new();
    let spec = HostSpec { pcpus: vcpus, switch_ns: 0, cold_cache_ns: 0, spare_lock_holders: false };
    let tunables = sched::Tunables::linux(vcpus, 250);
    let host = Host::new(spec, Box::new(sched::eevdf::eevdf_with(vcpus, &tunables)), world.queue());
    let host = world.add_host(host);
    let memory = Memory::new(&memory::Spec { bytes: 64 << 20, cpus: vcpus, costs: costs.memory.clone() });
    let spec = Spec {
        kernel: Default::default(),
        vcpus,
        hz,
        costs,
        rcu: rcu::Params { hz, ..rcu::Params::default() },
        remedies: Default::default(),
        locks: 0,
        discipline: Spinlocks::Queued,
        tick_phase_ns: 0,
        idle: Default::default(),
    };
    let mut guest = Guest::new(&spec, memory, 1, world.queue());
    add(&mut guest);
    world.add_guest(host, guest, |vcpu| sched::Spec {
        allowed: vec![sched::Cpu(vcpu as u32)],
        ..sched::Spec::default()
    });
    world.start();
    world
}
