//! The limits of the workload `tasks`.

use super::{bad, refuse_if, within};
use crate::scenario::{Result, Scenario, TaskStep, TaskThreads, Tasks};

/// Most threads of all tasks together.
const THREADS: u32 = 256;

impl Scenario {
    pub(super) fn check_tasks(&self, asked: &Tasks) -> Result {
        within("workload.tasks", asked.tasks.len(), 1, 64)?;
        let threads = asked.tasks.values().fold(0_u32, |sum, task| sum.saturating_add(task.threads));
        within("workload.tasks", threads, 1, THREADS)?;
        asked.tasks.iter().try_for_each(|(name, task)| {
            let key = format!("workload.tasks.{name}");
            let last = self.guest.vcpus as u32 - 1;
            let vcpus = format!("{key}.vcpus");
            within(&vcpus, task.vcpus.len(), 0, self.guest.vcpus)?;
            task.vcpus.iter().try_for_each(|vcpu| within(&vcpus, *vcpu, 0, last))?;
            check_phases(&format!("{key}.phases"), task, asked)
        })
    }
}

fn check_phases(key: &str, task: &TaskThreads, all: &Tasks) -> Result {
    within(key, task.phases.len(), 1, 64)?;
    task.phases.iter().try_for_each(|phase| within(key, phase.steps.len(), 1, 64))?;
    let steps = || task.phases.iter().flat_map(|phase| &phase.steps);
    let takes_time = |step: &TaskStep| !matches!(step, TaskStep::Resume { .. } | TaskStep::Yield {});
    refuse_if(!steps().any(takes_time), key, "no step takes time: add a run, a sleep, a timer or a suspend")?;
    let mut resumed = steps().filter_map(|step| match step {
        TaskStep::Resume { task } => Some(task),
        _ => None,
    });
    match resumed.find(|name| !all.tasks.contains_key(*name)) {
        Some(name) => bad(key, format!("resumes {name:?}, and there is no such task")),
        None => Ok(()),
    }
}
