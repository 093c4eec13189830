//! One run: builds a world, warms it up, observes it for a window, and checks it.

use std::collections::BTreeMap;
use std::sync::Arc;

use reprieve_study::observation::{Provenance, Replayed};
use reprieve_study::scenario::TAPE_END_NS;
use reprieve_study::scenario::{BadScenario, Condition, HostModel, IoSystem, PlannedRun, Scenario, Workload};
use reprieve_study::units::{self, MIB, MILLISECOND_NS, SECOND_NS};
use reprieve_study::{Observation, Tape};

use crate::build::{Built, build};
use crate::cpu_share::{self, CpuShare};
use crate::digest;
use crate::error::SimError;
use crate::guest::Kernel;
use crate::observe::{self, Observer};
use crate::workload;

/// How often to ask whether the user wants to stop: after so many samples, or so many events. Both take a second at
/// most.
const LOOKS_PER_QUESTION: u64 = 256;
const EVENTS_PER_QUESTION: u64 = 1 << 18;

/// At the end, records are converted into series, a trace and distributions, each about as large as the records.
const TIMES_HELD: u64 = 4;

/// The recordings to replay, by the path in the scenario's `replay`. The caller loads them.
pub type Tapes = BTreeMap<String, Arc<Tape>>;

/// Something that happens to the guest at a set time of the window.
#[derive(Clone, Copy, Debug)]
enum Stimulus {
    /// A vCPU is paused.
    Pause { vcpu: usize, for_ns: u64 },
    /// The spike of that number begins.
    Spike { number: usize, for_ns: u64 },
}

/// Simulates one run. For the counterfactual `cpu-share`, and for the ideal `even-share`, it first simulates the same run
/// without it, to measure the share.
///
/// # Errors
/// A scenario that cannot be built, an interruption by the user, or an invariant that does not hold.
pub fn simulate(
    run: &PlannedRun,
    tapes: &Tapes,
    interrupted: &dyn Fn() -> bool,
) -> Result<Observation, SimError> {
    let (condition, is_made_up) = cpu_share::as_given(&run.scenario.conditions[&run.condition]);
    let tape = match condition.replay.as_str() {
        "" => None,
        path => Some(&**tapes.get(path).ok_or_else(|| missing(run, path))?),
    };
    tape.map_or(Ok(()), |tape| run.scenario.check_tape(&run.condition, tape))?;
    let simulate = |made_up| simulate_with(run, &condition, tape, made_up, interrupted);
    let share = match cpu_share::uneven(&condition) {
        Some(uneven) => {
            let beside = simulate_with(run, &uneven, tape, CpuShare::ALL, interrupted)?;
            CpuShare::of(&beside).inverse()
        }
        None => CpuShare::ALL,
    };
    let mut observation = simulate(share)?;
    if is_made_up {
        observation = simulate(CpuShare::of(&observation))?;
    }
    if let Some(tape) = tape {
        let (source, metrics) = (tape.source.clone(), tape.metrics.clone());
        observation.replayed = Some(Replayed { source, metrics });
        let provenance = &mut observation.provenance;
        if provenance.window_ns > tape.length_ns + TAPE_END_NS {
            let length = units::duration(tape.length_ns as f64);
            provenance.notes.push(format!(
                "the recording ended after {length}: from then on nothing disturbed the guest"
            ));
        }
    }
    Ok(observation)
}

fn missing(run: &PlannedRun, path: &str) -> BadScenario {
    BadScenario::new(format!("conditions.{}.replay", run.condition), format!("{path} was not read"))
}

/// Simulates one run of a guest whose speed makes up for that share.
fn simulate_with(
    run: &PlannedRun,
    condition: &Condition,
    tape: Option<&Tape>,
    made_up: CpuShare,
    interrupted: &dyn Fn() -> bool,
) -> Result<Observation, SimError> {
    let scenario = &run.scenario;
    // All conditions of a repetition have the same random numbers, so that only the condition differs.
    let seed = scenario.run.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(run.repetition));
    let mut simulation = Simulation {
        built: build(scenario, condition, seed, made_up)?,
        scenario,
        look_ns: SECOND_NS / u64::from(scenario.observe.sample_hz),
        interrupted,
        observed_bytes: 0,
        ended_by: None,
    };
    observe::prepare(&mut simulation.built.world, scenario);
    simulation.built.world.start();
    simulation.warm_up()?;
    let mut observer = Observer::begin(&mut simulation.built.world, scenario, &simulation.built.others);
    simulation.window(stimuli(condition, tape), &mut observer)?;
    let broken = |broken| SimError::Broken { run: run.title(), broken };
    observer.check().map_err(broken)?;
    let mut observation =
        observer.end(&mut simulation.built.world, run, provenance(scenario, condition, seed));
    simulation.run_out()?;
    let Simulation { built: Built { world, .. }, ended_by, .. } = simulation;
    world.check().map_err(broken)?;
    let workers = workload::workers(&scenario.workload).unwrap_or(0);
    observe::fixed_work(&mut observation, world.guest(0).counters(), workers);
    let provenance = &mut observation.provenance;
    provenance.events = world.events;
    provenance.notes.extend(ended_by.map(|limit| format!("ended early: {limit} was reached")));
    observation.provenance.result_hash = digest::result_hash(world.digest, &observation);
    Ok(observation)
}

struct Simulation<'a> {
    built: Built,
    scenario: &'a Scenario,
    look_ns: u64,
    interrupted: &'a dyn Fn() -> bool,
    /// Memory of the observer's records.
    observed_bytes: u64,
    /// The limit that ended the run.
    ended_by: Option<String>,
}

impl Simulation<'_> {
    /// Advances to that time, or to a limit. Returns whether the run goes on.
    fn advance(&mut self, until_ns: u64) -> Result<bool, SimError> {
        let limits = &self.scenario.limits;
        let end_ns = if limits.simulated_ms == 0 { u64::MAX } else { limits.simulated_ms * MILLISECOND_NS };
        loop {
            let world = &mut self.built.world;
            let question = world.spent() + EVENTS_PER_QUESTION;
            let reached = world.run_until(until_ns.min(end_ns), limits.events.min(question));
            let (spent, held_bytes) = (world.spent(), self.observed_bytes + world.held_bytes());
            let ended_by = match reached {
                _ if held_bytes * TIMES_HELD > limits.memory_mib * MIB => {
                    Some(format!("limits.memory_mib = {}", limits.memory_mib))
                }
                true if until_ns > end_ns => Some(format!("limits.simulated_ms = {}", limits.simulated_ms)),
                false if spent >= limits.events => Some(format!("limits.events = {}", limits.events)),
                _ => None,
            };
            if ended_by.is_some() {
                self.ended_by = ended_by;
                return Ok(false);
            }
            if reached {
                return Ok(true);
            }
            self.ask()?;
        }
    }

    /// Waits for a fixed time; with a workload of fixed size, until all its workers are ready.
    fn warm_up(&mut self) -> Result<(), SimError> {
        let workers = workload::workers(&self.scenario.workload);
        let mut at_ns = match workers {
            Some(_) => 0,
            None => self.scenario.run.warmup_ms * MILLISECOND_NS,
        };
        let mut on = self.advance(at_ns)?;
        let mut looks = 0;
        while on && self.built.world.guest(0).counters().ready < workers.unwrap_or(0) {
            looks += 1;
            self.ask_after(looks)?;
            at_ns += self.look_ns;
            on = self.advance(at_ns)?;
        }
        Ok(())
    }

    /// Samples the guest until the window is over.
    fn window(&mut self, mut stimuli: Vec<(u64, Stimulus)>, observer: &mut Observer) -> Result<(), SimError> {
        let start_ns = self.built.world.now_ns;
        let end_ns = match workload::workers(&self.scenario.workload) {
            Some(_) => u64::MAX,
            None => start_ns + self.scenario.run.window_ms * MILLISECOND_NS,
        };
        let start_bytes = self.built.world.guest(0).counters().read_bytes;
        let mut looks = 0;
        let mut on = self.ended_by.is_none();
        while on && self.built.world.now_ns < end_ns && !self.one_finished() && !self.all_measured() {
            if observe::is_worked(self.built.world.guest(0), self.scenario, start_bytes) {
                break;
            }
            looks += 1;
            self.ask_after(looks)?;
            let next_ns = (start_ns + looks * self.look_ns).min(end_ns);
            while let Some((at_ns, stimulus)) = stimuli.last().copied()
                && start_ns + at_ns <= next_ns
                && on
            {
                stimuli.pop();
                on = self.advance(start_ns + at_ns)?;
                if on {
                    self.stimulate(stimulus);
                }
            }
            on = on && self.advance(next_ns)?;
            observer.look(&mut self.built.world);
            self.observed_bytes = observer.held_bytes();
        }
        Ok(())
    }

    /// Lets a workload of fixed size finish: its throughput covers all of the work.
    fn run_out(&mut self) -> Result<(), SimError> {
        let workers = workload::workers(&self.scenario.workload).unwrap_or(0);
        let mut on = self.ended_by.is_none();
        let mut looks = 0;
        while on && self.built.world.guest(0).counters().finished < workers {
            looks += 1;
            self.ask_after(looks)?;
            on = self.advance(self.built.world.now_ns + self.look_ns)?;
        }
        Ok(())
    }

    /// Whether a worker of a workload of fixed size has finished. The load changes then, so the window ends.
    fn one_finished(&self) -> bool {
        self.built.world.guest(0).counters().finished > 0
    }

    fn all_measured(&self) -> bool {
        let latencies = &self.built.world.guest(0).counters().latencies;
        self.scenario.workload.latencies().is_some() && latencies.is_complete()
    }

    fn stimulate(&mut self, stimulus: Stimulus) {
        let world = &mut self.built.world;
        match stimulus {
            Stimulus::Pause { vcpu, for_ns } => world.pause(0, vcpu, for_ns),
            Stimulus::Spike { number, for_ns } => {
                for thread in &self.built.spikes[number] {
                    world.spike(self.built.host, *thread, for_ns);
                }
            }
        }
    }

    fn ask_after(&self, looks: u64) -> Result<(), SimError> {
        if looks.is_multiple_of(LOOKS_PER_QUESTION) { self.ask() } else { Ok(()) }
    }

    fn ask(&self) -> Result<(), SimError> {
        if (self.interrupted)() { Err(SimError::Interrupted) } else { Ok(()) }
    }
}

/// The stimuli of the window, latest first.
fn stimuli(condition: &Condition, tape: Option<&Tape>) -> Vec<(u64, Stimulus)> {
    let pauses = condition.pauses.iter().map(|pause| {
        (
            pause.at_ms * MILLISECOND_NS,
            Stimulus::Pause { vcpu: pause.vcpu, for_ns: pause.for_ms * MILLISECOND_NS },
        )
    });
    let spikes = condition.spikes.iter().enumerate().map(|(number, spike)| {
        (spike.at_ms * MILLISECOND_NS, Stimulus::Spike { number, for_ns: spike.for_ms * MILLISECOND_NS })
    });
    let replayed = tape.into_iter().flat_map(|tape| {
        let of = |vcpu: usize| {
            tape.off(vcpu).map(move |off| (off.start_ns, Stimulus::Pause { vcpu, for_ns: off.length_ns() }))
        };
        (0..tape.vcpus()).flat_map(of)
    });
    let mut all: Vec<(u64, Stimulus)> = pauses.chain(spikes).chain(replayed).collect();
    all.sort_by_key(|(at_ns, _)| std::cmp::Reverse(*at_ns));
    all
}

fn provenance(scenario: &Scenario, condition: &Condition, seed: u64) -> Provenance {
    let pcpus = scenario.pcpus_under(condition);
    Provenance {
        ground: format!("sim, reprieve {}", env!("CARGO_PKG_VERSION")),
        kernel: format!(
            "model of Linux {}, HZ {}",
            Kernel::named(&scenario.guest.kernel).version(),
            scenario.guest.hz
        ),
        host_kernel: host_kernel(&scenario.host),
        host_pcpus: pcpus,
        seed,
        scheduling_source: "the simulated scheduler".into(),
        policy: policy(&scenario.workload).into(),
        ..Provenance::default()
    }
}

/// The hash of the policy's source, if the policy takes part.
fn policy(workload: &Workload) -> &'static str {
    match workload.io() {
        Some(io) if io.system == IoSystem::Vmigrater => env!("REPRIEVE_POLICY"),
        _ => "",
    }
}

fn host_kernel(host: &HostModel) -> String {
    if host.scheduler.is_xen() {
        return format!("model of Xen {} with {}", host.xen.version, host.scheduler.name());
    }
    format!("model of Linux with {}, HZ {}", host.scheduler.name(), host.hz)
}
