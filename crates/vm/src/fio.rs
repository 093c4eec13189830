//! Runs of the workload `fio`: reads from a disk with latency, tasks that compute beside them, bursts of the host, and who
//! moves fio's jobs: nobody, the guest's scheduler, or the daemon `reprieve migrate` inside the guest.
//!
//! | module | does |
//! |---|---|
//! | [`command`] | command lines of what runs in the guest |
//! | [`clocks`] | the guest's clock and the host's |
//! | [`daemon_record`] | what the daemon's record tells, and its replay |
//! | `session` | one boot, and one run in it |
//!
//! A boot takes as long as half of a run. So one serves all conditions of a repetition, one after the other, each with a fio,
//! computing tasks and a daemon of its own. The guest's memory is not looked into: looking takes CPU time from the vCPUs.
//!
//! Invariants: equal terms, in every run QEMU's threads that are no vCPUs are real-time, each vCPU has the same pCPU, and the
//! same tasks compute; in one repetition all conditions meet the same bursts.

pub mod clocks;
pub mod command;
pub mod daemon_record;
mod session;

use std::path::PathBuf;

use reprieve_study::scenario::PlannedRun;
use reprieve_study::{Observation, Scenario};

use crate::lab::Lab;
use crate::{Host, Result, Step, VmError, bursts};
use session::Session;

pub use command::disk;

/// The programs of the host's that a scenario's runs need: this one, if its daemon is to run.
///
/// # Errors
/// It is not there.
pub fn needed(scenario: &Scenario, host: &Host) -> Result<Vec<PathBuf>> {
    let runs = scenario.plan()?;
    let mut placements = runs.iter().filter_map(|run| Some(run.scenario.workload.fio()?.placement));
    if !placements.any(|placement| placement.policy().is_some()) {
        return Ok(Vec::new());
    }
    if !host.daemon.is_file() {
        let what = format!("the program {}, whose daemon is to run in the guest", host.daemon.display());
        return Err(VmError::Missing { what, way_out: "build it with: cargo build --release".into() });
    }
    Ok(vec![host.daemon.clone()])
}

/// Refuses bursts, and fio, whose devices must be real-time, where real-time threads are not permitted.
///
/// # Errors
/// What keeps them from being.
pub fn permit(scenario: &Scenario) -> Result<()> {
    let has_bursts = scenario.chosen().any(|(_, condition)| condition.bursts.is_some());
    if has_bursts || scenario.workload.fio().is_some() { bursts::try_permission() } else { Ok(()) }
}

/// What runs have in common, one after the other.
#[derive(Default)]
pub struct Bench {
    session: Option<Session>,
    /// Of each run in which the daemon decided otherwise than a replay of its record: which, and how.
    differing: Vec<String>,
}

impl Bench {
    /// Does one run, in the guest of the last one if that is of the same repetition. `step` is told what happens.
    ///
    /// # Errors
    /// Those of the machine and the guest; the next run then has a guest of its own.
    pub fn run(&mut self, lab: &Lab, planned: &PlannedRun, step: &mut Step) -> Result<Observation> {
        let spec = lab.machine_spec(&planned.scenario);
        let mut session = match self.session.take().filter(|session| session.serves(planned, &spec)) {
            Some(session) => session,
            None => {
                step("boots");
                Session::boot(lab, spec, planned)?
            }
        };
        let (observation, differs) =
            session.measure(lab, planned, step).map_err(|error| session.explain(error))?;
        self.session = Some(session);
        let title = || format!("{}, repetition {}", planned.title(), planned.repetition);
        self.differing.extend(differs.map(|differs| format!("{}: {differs}", title())));
        Ok(observation)
    }

    /// Whether every recorded run was decided as its replay decides.
    ///
    /// # Errors
    /// [`VmError::Replay`] names the others.
    pub fn conclude(self) -> Result<()> {
        match self.differing.is_empty() {
            true => Ok(()),
            false => Err(VmError::Replay(self.differing.join("\n    "))),
        }
    }
}
