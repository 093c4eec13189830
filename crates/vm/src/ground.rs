//! The ground `vm`: prepares what runs have in common, and works through a scenario's plan.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::seq::SliceRandom;
use reprieve_linux::cgroup::{self, Cgroups, Quota};
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::warden::Guarded;
use reprieve_study::observation::{Observation, Standing};
use reprieve_study::scenario::{BadScenario, Scenario, Workload};
use reprieve_study::statistics;
use reprieve_study::units::MIB;

use crate::error::VmError;
use crate::host::Host;
use crate::image::{self, Cache, ImageOptions};
use crate::lab::Lab;
use crate::qemu::{self, Accel, Chosen, MachineSpec};
use crate::stimulus::Stimulus;

/// Who is told how things go.
pub trait Progress {
    /// A stage of the preparation.
    fn preparing(&mut self, what: &str);
    /// Run `number` of `total` is at a stage: `3 of 20, overcommitted: boots`.
    fn running(&mut self, number: usize, total: usize, condition: &str, stage: &str);
    /// A run has ended.
    fn ended(&mut self, number: usize, total: usize, observation: &Observation);
    /// Something that the user should know.
    fn warning(&mut self, text: &str);
}

/// A ground that is ready to run one scenario.
pub struct Ground {
    lab: Lab,
    scenario: Scenario,
}

/// What a plan gave: the finished runs, and the error that ended it early.
pub struct Finished {
    /// The scenario as it was run.
    pub scenario: Scenario,
    /// All finished runs in order.
    pub observations: Vec<Observation>,
    /// Why not all of them.
    pub error: Option<VmError>,
}

impl Ground {
    /// Gets everything ready: image, accelerator, permissions.
    pub fn prepare(
        mut scenario: Scenario,
        host: Host,
        cache: &Cache,
        progress: &mut dyn Progress,
    ) -> Result<Ground, VmError> {
        let pcpus = reprieve_linux::proc::allowed_cpus()?;
        check_machine(&scenario, &host.proc_root)?;
        admit_sharing(&mut scenario, &pcpus, progress);
        let qemu_version = qemu::version()?;
        let kernel = Some(&scenario.guest.kernel).filter(|path| !path.is_empty()).map(PathBuf::from);
        let options = ImageOptions { kernel, ..ImageOptions::default() };
        let image = image::prepare(cache, &options, &mut |what| progress.preparing(what))?;
        check_module(&scenario, image.has_module)?;
        permit_quotas(&mut scenario, &host, &pcpus, progress)?;
        let mut lab = Lab {
            host,
            image,
            chosen: Chosen { accel: Accel::Tcg, reason: String::new() },
            qemu_version,
            pcpus,
        };
        progress.preparing("chooses the accelerator");
        let probe =
            MachineSpec { memory_bytes: 256 * MIB, append: String::new(), ..lab.machine_spec(&scenario) };
        let remembered = cache.root().join("kvm-probe");
        lab.chosen = qemu::choose(scenario.guest.accelerator, &probe, &remembered, &lab.host)?;
        Ok(Ground { lab, scenario })
    }

    /// The lab, for single experiments.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Works through the plan: repetitions of all conditions, interleaved, in an order from the seed. Runs
    /// that others disturbed are done again, as far as the plan allows.
    pub fn run(self, progress: &mut dyn Progress) -> Finished {
        let order = order(&self.scenario);
        let mut observations = Vec::new();
        let mut redos = self.scenario.run.redo_limit;
        let mut error = None;
        let (mut queue, mut number) = (order.into_iter(), 0);
        let mut total = queue.len();
        let mut again = None;
        while let Some((name, repetition)) = again.take().or_else(|| queue.next()) {
            number += 1;
            let condition = &self.scenario.conditions[&name];
            let mut step = |stage: &str| progress.running(number, total, &name, stage);
            let mut observation = match self.lab.run(&self.scenario, &name, condition, repetition, &mut step)
            {
                Ok(observation) => observation,
                Err(failure) => {
                    error = Some(failure);
                    break;
                }
            };
            if observation.provenance.foreign_cpu_percent > self.scenario.run.foreign_cpu_limit_percent {
                observation.standing = if redos > 0 { Standing::Redone } else { Standing::Kept };
            }
            if observation.standing == Standing::Redone {
                redos -= 1;
                total += 1;
                again = Some((name, repetition));
            }
            // A trace is large; the first one of each condition is what is looked at.
            if observations.iter().any(|earlier: &Observation| {
                earlier.condition == observation.condition && earlier.standing.counts()
            }) {
                observation.trace = None;
            }
            progress.ended(number, total, &observation);
            observations.push(observation);
        }
        Finished { scenario: self.scenario, observations, error }
    }
}

/// The runs of a plan: within each repetition all conditions, in random order.
fn order(scenario: &Scenario) -> Vec<(String, u32)> {
    let mut rng = statistics::stream(scenario.run.seed, "order of runs");
    let names: Vec<&String> = scenario.chosen().map(|(name, _)| name).collect();
    let block = |repetition: u32| {
        let mut block: Vec<(String, u32)> = names.iter().map(|name| (name.to_string(), repetition)).collect();
        block.shuffle(&mut rng);
        block
    };
    (0..scenario.run.repeat).flat_map(block).collect()
}

/// An undisturbed guest with more vCPUs than there are pCPUs disturbs itself: says so in the label.
fn admit_sharing(scenario: &mut Scenario, pcpus: &[usize], progress: &mut dyn Progress) {
    let vcpus = scenario.guest.vcpus;
    if vcpus <= pcpus.len() {
        return;
    }
    for (name, condition) in
        scenario.conditions.iter_mut().filter(|(_, condition)| condition.is_undisturbed())
    {
        condition.label = format!("{vcpus} vCPUs share {} pCPUs: not undisturbed", pcpus.len());
        progress.warning(&format!("{name}: {}", condition.label));
    }
}

/// Refuses what this machine cannot hold.
///
/// # Errors
/// A scenario that names pCPUs which there are not, or takes more memory than is available.
pub fn check_machine(scenario: &Scenario, proc_root: &ProcRoot) -> Result<(), VmError> {
    let pcpus = reprieve_linux::proc::allowed_cpus()?;
    for (name, condition) in scenario.chosen() {
        Stimulus::pcpus(name, condition, &pcpus)?;
    }
    let machines =
        1 + scenario.chosen().map(|(_, condition)| u64::from(condition.neighbours)).max().unwrap_or(0);
    let available_mib = proc_root.meminfo()?.available_bytes / MIB;
    let wanted_mib = scenario.guest.memory_mib.saturating_mul(machines);
    if wanted_mib > available_mib {
        let problem = format!(
            "{machines} guest(s) of {} MiB are more than the {available_mib} MiB that the host has available",
            scenario.guest.memory_mib
        );
        return Err(BadScenario { key: "guest.memory_mib".into(), problem }.into());
    }
    Ok(())
}

/// Refuses the memory workload, and neighbours, which run it, where the kernel's headers are missing.
fn check_module(scenario: &Scenario, has_module: bool) -> Result<(), VmError> {
    let memory = matches!(scenario.workload, Workload::Memory { .. });
    if has_module || (!memory && scenario.chosen().all(|(_, condition)| condition.neighbours == 0)) {
        return Ok(());
    }
    let what = format!("the headers of the kernel {}", scenario.guest.kernel);
    let way_out = "the memory workload is a kernel module: install them, or run another workload".into();
    Err(VmError::Missing { what, way_out })
}

/// Where CPU quotas are not permitted, a condition that needs them shares one pCPU instead, and says so.
fn permit_quotas(
    scenario: &mut Scenario,
    host: &Host,
    pcpus: &[usize],
    progress: &mut dyn Progress,
) -> Result<(), VmError> {
    if scenario.chosen().all(|(_, condition)| condition.quota.is_empty()) {
        return Ok(());
    }
    let Err(refusal) = try_quota(host) else { return Ok(()) };
    for (name, condition) in &mut scenario.conditions {
        if condition.quota.is_empty() {
            continue;
        }
        condition.quota.clear();
        if condition.pcpus.is_empty() {
            condition.pcpus = pcpus.first().copied().into_iter().collect();
        }
        condition.label = format!("all vCPUs pinned to one pCPU, for want of CPU quotas ({refusal})");
        progress.warning(&format!("{name}: {}", condition.label));
    }
    Ok(())
}

/// Makes a quota and removes it again; also removes what dead runs left. Gives where quotas are made.
///
/// # Errors
/// What keeps this process from making quotas, and the way out.
pub fn try_quota(host: &Host) -> Result<Cgroups, VmError> {
    let cgroups = Cgroups::detect(&host.proc_root)?;
    cgroup::sweep_stale(&cgroups, &host.proc_root)?;
    let name = format!("{}-probe", cgroup::unique_name(&host.proc_root)?);
    let mut guard = host.guard(Guarded::Cgroup(cgroups.path_of(&name)))?;
    let mut tree = cgroups.create(&name)?;
    tree.quota_group("probe", Quota::from_percent(50.0, 100_000)?)?;
    tree.close().inspect_err(|_| guard.leave_to_warden())?;
    Ok(cgroups)
}

/// How long a plan will take, roughly, for a user who waits: from the time that finished runs took.
pub fn time_left(started: Instant, done: usize, total: usize) -> Option<Duration> {
    let left = total.checked_sub(done)? as u32;
    (done > 0).then(|| started.elapsed() / done as u32 * left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_of_the_seed_interleaved_and_complete() {
        let text =
            "name='t'\ntitle='t'\n[workload]\nkind='memory'\n[conditions.a]\n[conditions.b]\n[conditions.c]";
        let of = |seed: u32| {
            let assignments = ["run.repeat=8".to_string(), format!("run.seed={seed}")];
            order(&reprieve_study::overrides::read(text, &assignments).unwrap())
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        for (repetition, block) in of(1).chunks(3).enumerate() {
            let mut names: Vec<&str> = block.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ["a", "b", "c"]);
            assert!(block.iter().all(|(_, of)| *of as usize == repetition));
        }
    }
}
