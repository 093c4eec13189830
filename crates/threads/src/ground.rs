//! The ground `threads`: checks that a scenario can run on this machine, and runs its plan.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use reprieve_linux::proc::{self, ForeignCpu, ProcRoot};
use reprieve_linux::signals::Interrupt;
use reprieve_study::delete_free::{Answer, Options};
use reprieve_study::ground::{self, Finished, Progress};
use reprieve_study::scenario::{BadScenario, PlannedRun};
use reprieve_study::{Observation, Provenance, Scenario, Workload};

use crate::peer::Peers;
use crate::{Result, ThreadsError, program};

/// The time a program may take beyond warm-up, window and stall, to fill its table and wait for the last frees. It
/// takes a few seconds at most.
const SLACK: Duration = Duration::from_secs(30);

/// Everything of the host that the ground uses. The caller passes it in.
#[derive(Clone)]
pub struct Host {
    /// `/proc`.
    pub proc_root: ProcRoot,
    /// Raised when the user wants to stop.
    pub interrupt: Interrupt,
    /// The directory of the programs; see [`crate::peer::directory`].
    pub peers: PathBuf,
    /// CPUs that this process may use.
    pub cpus: Vec<usize>,
}

impl Host {
    /// The host of this process. Programs inherit the calling thread's CPUs.
    ///
    /// # Errors
    /// [`ThreadsError::Host`] if the CPUs cannot be read.
    pub fn new(interrupt: Interrupt, peers: PathBuf) -> Result<Host> {
        let cpus = proc::allowed_cpus()?;
        Ok(Host { proc_root: ProcRoot::default(), interrupt, peers, cpus })
    }
}

/// The time that a program takes to fill its table and to free the last elements, ms.
const FILL_MS: u64 = 1_200;

/// Real threads of this machine.
pub struct ThreadsGround(pub Host);

impl ground::Ground for ThreadsGround {
    type Error = ThreadsError;

    fn length(scenario: &Scenario) -> String {
        let (run, runs) = (&scenario.run, scenario.runs());
        let stall_ms = if let Workload::DeleteFree(asked) = &scenario.workload { asked.stall_ms } else { 0 };
        let each_ms = run.warmup_ms + run.window_ms + stall_ms + FILL_MS;
        format!("{runs} runs, about {} s", runs * each_ms / 1000)
    }

    fn check(&self, scenario: &Scenario) -> Result<()> {
        check_machine(scenario, &self.0)
    }

    /// Runs the plan: repetitions of all conditions, interleaved, in an order that the seed determines. Runs disturbed
    /// by other processes are repeated as far as the plan allows.
    fn run(&self, scenario: Scenario, progress: &mut dyn Progress) -> Finished<ThreadsError> {
        match Ready::new(&scenario, self.0.clone(), progress) {
            Ok(ready) => ground::finish(scenario, progress, |planned, step| ready.one(planned, step)),
            Err(error) => Finished::failed(scenario, error),
        }
    }
}

/// The state that the runs of a scenario share.
struct Ready {
    host: Host,
    seed: u64,
    peers: Peers,
    host_kernel: String,
}

impl Ready {
    /// Checks that every run of the scenario has its program and its CPUs.
    ///
    /// # Errors
    /// The obstacle, with its key or a way out; [`ThreadsError::Program`] if a program does not describe itself correctly.
    fn new(scenario: &Scenario, host: Host, progress: &mut dyn Progress) -> Result<Ready> {
        check_machine(scenario, &host)?;
        let peers = Peers::open(&host.peers)?;
        progress.preparing("asks each program for its scheme");
        for scheme in schemes(&scenario.plan()?) {
            peers.describe(&scheme, &host.interrupt)?;
        }
        let host_kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        Ok(Ready { host, seed: scenario.run.seed, peers, host_kernel })
    }

    fn one(&self, planned: &PlannedRun, step: &mut dyn FnMut(&str)) -> Result<Observation> {
        let (scheme, options) = asked(planned)?;
        let path = self.peers.program(scheme)?;
        let limit = Duration::from_millis(options.length_ms()) + SLACK;
        step("is measured");
        let (root, own) = (&self.host.proc_root, std::process::id() as i32);
        let foreign_cpu = ForeignCpu::open(root, &options.cpus())?;
        let before_ns = root.process_cpu_ns(own)?;
        let mut foreign = Ok(0.0);
        let said = program::run(&path, &options.arguments(), limit, &self.host.interrupt, |pid| {
            foreign = root.whole_cpu_ns(pid).and_then(|program_ns| {
                let own_ns = root.process_cpu_ns(own)?.saturating_sub(before_ns);
                foreign_cpu.share(root, program_ns + own_ns)
            });
        })?;
        let provenance = Provenance {
            ground: "threads".into(),
            host_kernel: self.host_kernel.clone(),
            host_pcpus: self.host.cpus.len(),
            seed: self.seed,
            foreign_cpu_percent: foreign? * 100.0,
            ..Provenance::default()
        };
        let answer = said.read(|text| Answer::read(text, scheme, &options))?;
        Ok(answer.observe(planned, provenance))
    }
}

/// Checks that this machine can run the scenario.
///
/// # Errors
/// If there are no programs, a scheme has no program, or this process may not use a CPU (with the key that names it).
pub fn check_machine(scenario: &Scenario, host: &Host) -> Result<()> {
    let (plan, peers) = (scenario.plan()?, Peers::open(&host.peers)?);
    for planned in &plan {
        let (_, options) = asked(planned)?;
        for (key, cpus) in [("reader_cpus", &options.reader_cpus), ("writer_cpus", &options.writer_cpus)] {
            if let Some(other) = cpus.iter().find(|cpu| !host.cpus.contains(cpu)) {
                let known: Vec<String> = host.cpus.iter().map(usize::to_string).collect();
                let problem = format!(
                    "under {}: this process may not use CPU {other}; it may use {}",
                    planned.title(),
                    known.join(", ")
                );
                return Err(BadScenario::new(format!("workload.{key}"), problem).into());
            }
        }
    }
    schemes(&plan).iter().try_for_each(|scheme| peers.program(scheme).map(drop))
}

/// The schemes of a plan, without duplicates.
fn schemes(plan: &[PlannedRun]) -> BTreeSet<String> {
    plan.iter().filter_map(|planned| Some(Options::of(&planned.scenario, 0)?.0.to_string())).collect()
}

fn asked(planned: &PlannedRun) -> Result<(&str, Options), BadScenario> {
    let other = || BadScenario::new("workload.kind", "real threads run only delete-free");
    Options::of(&planned.scenario, planned.repetition).ok_or_else(other)
}
