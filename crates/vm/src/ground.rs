//! The ground `vm`: prepares what all runs of a scenario share, and works through its plan.

use std::path::PathBuf;

use reprieve_linux::cgroup::{self, Cgroups, Quota};
use reprieve_linux::warden::Guarded;
use reprieve_study::ground::{self, Finished, Progress};
use reprieve_study::scenario::BadScenario;
use reprieve_study::units::MIB;
use reprieve_study::{Scenario, Workload, regained};

use crate::image::{self, Cache, ImageOptions, KernelChoice};
use crate::lab::Lab;
use crate::qemu::{self, Accel, Chosen, MachineSpec};
use crate::stimulus::Stimulus;
use crate::{Host, Result, VmError, fio, program};

/// A guest boots in about this time under emulation, s.
const BOOT_S: u64 = 5;

/// Real guests under QEMU.
pub struct VmGround {
    /// This machine.
    pub host: Host,
    /// Where images are kept.
    pub cache: PathBuf,
}

impl ground::Ground for VmGround {
    type Error = VmError;

    fn length(scenario: &Scenario) -> String {
        let (run, runs) = (&scenario.run, scenario.runs());
        format!("{runs} runs, about {} s", runs * ((run.warmup_ms + run.window_ms) / 1000 + BOOT_S))
    }

    fn check(&self, scenario: &Scenario) -> Result<()> {
        check_machine(scenario, &self.host)?;
        Ok(Cache::new(self.cache.clone()).map(drop)?)
    }

    /// Repetitions of all conditions, interleaved, in an order that follows from the seed. Repeats runs that other processes
    /// disturbed, as far as the plan allows.
    fn run(&self, mut scenario: Scenario, progress: &mut dyn Progress) -> Finished<VmError> {
        let lab = match self.lab(&mut scenario, progress) {
            Ok(lab) => lab,
            Err(error) => return Finished::failed(scenario, error),
        };
        let mut bench = fio::Bench::default();
        let mut finished =
            ground::finish(scenario, progress, |planned, step| match planned.scenario.workload {
                Workload::Fio(_) => bench.run(&lab, planned, step),
                _ => lab.run(planned, step),
            });
        regained::fill(&finished.scenario, &mut finished.observations);
        finished.error = finished.error.or(bench.conclude().err());
        finished
    }
}

impl VmGround {
    /// What the runs of a scenario share: the image, the accelerator, the permissions.
    fn lab(&self, scenario: &mut Scenario, progress: &mut dyn Progress) -> Result<Lab> {
        let host = &self.host;
        let pcpus = reprieve_linux::proc::allowed_cpus()?;
        check_machine(scenario, host)?;
        fio::permit(scenario)?;
        admit_sharing(scenario, &pcpus, progress)?;
        let qemu_version = qemu::version()?;
        let kernel = KernelChoice::of(&scenario.guest.kernel);
        let mut programs = program::needed(scenario, &host.programs)?;
        programs.extend(fio::needed(scenario, host)?);
        let fio = scenario.workload.fio().is_some();
        let options = ImageOptions { kernel, programs, fio, ..ImageOptions::default() };
        let cache = Cache::new(self.cache.clone())?;
        let image = image::prepare(&cache, &options, &mut |what| progress.preparing(what))?;
        check_module(scenario, image.has_module)?;
        permit_quotas(scenario, host, &pcpus, progress)?;
        let mut lab = Lab {
            host: host.clone(),
            image,
            chosen: Chosen { accel: Accel::Tcg, reason: String::new() },
            qemu_version,
            pcpus,
        };
        progress.preparing("chooses the accelerator");
        let probe =
            MachineSpec { memory_bytes: 256 * MIB, append: String::new(), ..lab.machine_spec(scenario) };
        let remembered = cache.root().join("kvm-probe");
        lab.chosen = qemu::choose(scenario.guest.accelerator, &probe, &remembered, &lab.host)?;
        Ok(lab)
    }
}

/// With more vCPUs than pCPUs the vCPUs preempt each other even under an undisturbed condition. Says so in its label.
fn admit_sharing(scenario: &mut Scenario, pcpus: &[usize], progress: &mut dyn Progress) -> Result<()> {
    let names: Vec<String> = scenario.conditions.keys().cloned().collect();
    for name in names {
        let vcpus = scenario.under(&name)?.guest.vcpus;
        let condition = &mut scenario.conditions[&name];
        if vcpus > pcpus.len() && condition.is_undisturbed() {
            condition.label = format!("{vcpus} vCPUs share {} pCPUs: not undisturbed", pcpus.len());
            progress.warning(&format!("{name}: {}", condition.label));
        }
    }
    Ok(())
}

/// Refuses what this machine cannot hold.
///
/// # Errors
/// The scenario names pCPUs that this process may not use, needs more memory than is available, or needs a program that
/// is missing.
pub fn check_machine(scenario: &Scenario, host: &Host) -> Result<()> {
    let pcpus = reprieve_linux::proc::allowed_cpus()?;
    for (name, condition) in scenario.chosen() {
        Stimulus::pcpus(name, condition, &pcpus)?;
    }
    program::needed(scenario, &host.programs)?;
    fio::needed(scenario, host)?;
    let available_mib = host.proc_root.available_memory_bytes()? / MIB;
    for run in scenario.plan()?.iter().filter(|run| run.repetition == 0) {
        let machines = 1 + u64::from(run.scenario.conditions[&run.condition].neighbours);
        let each_mib = run.scenario.guest.memory_mib;
        if each_mib.saturating_mul(machines) > available_mib {
            let problem = format!(
                "{machines} guest(s) of {each_mib} MiB need more than the {available_mib} MiB that the host has \
                 available"
            );
            return Err(BadScenario::new("guest.memory_mib", problem).into());
        }
    }
    Ok(())
}

/// Refuses the memory workload where the kernel's headers are missing: it is a kernel module. Neighbours run it, too.
fn check_module(scenario: &Scenario, has_module: bool) -> Result<()> {
    let memory = matches!(scenario.workload, Workload::Memory { .. });
    if has_module || (!memory && scenario.chosen().all(|(_, condition)| condition.neighbours == 0)) {
        return Ok(());
    }
    let what = format!("the headers package of the kernel {}", scenario.guest.kernel);
    let way_out =
        "the memory workload is a kernel module: install that package, or run another workload".into();
    Err(VmError::Missing { what, way_out })
}

/// Where CPU quotas are not permitted, a condition with quotas pins all vCPUs to one pCPU instead, and says so. For the
/// quotas of a case there is no such substitute.
fn permit_quotas(
    scenario: &mut Scenario,
    host: &Host,
    pcpus: &[usize],
    progress: &mut dyn Progress,
) -> Result<()> {
    let have_cases = scenario.cases.values().any(|case| !case.quota.is_empty());
    if !have_cases && scenario.chosen().all(|(_, condition)| condition.quota.is_empty()) {
        return Ok(());
    }
    let Err(refusal) = try_quota(host) else { return Ok(()) };
    if have_cases {
        return Err(refusal);
    }
    for (name, condition) in &mut scenario.conditions {
        if condition.quota.is_empty() {
            continue;
        }
        condition.quota.clear();
        if condition.pcpus.is_empty() {
            condition.pcpus = pcpus.first().copied().into_iter().collect();
        }
        condition.label =
            format!("all vCPUs pinned to one pCPU, because CPU quotas are not permitted ({refusal})");
        progress.warning(&format!("{name}: {}", condition.label));
    }
    Ok(())
}

/// Removes cgroups of runs that were killed together with their wardens. Failures do no harm here: cgroups of another user
/// stay, and a run that needs quotas gets the error from [`try_quota`].
pub fn sweep(host: &Host) {
    let cgroups = Cgroups::detect(&host.proc_root);
    let _ = cgroups.and_then(|cgroups| cgroup::sweep_stale(&cgroups, &host.proc_root));
}

/// Sets a CPU quota and removes it again, after removing cgroups that dead runs left. Returns where quotas are set.
///
/// # Errors
/// Why this process cannot set quotas, and the way out.
pub fn try_quota(host: &Host) -> Result<Cgroups> {
    let cgroups = Cgroups::detect(&host.proc_root)?;
    cgroup::sweep_stale(&cgroups, &host.proc_root)?;
    let name = format!("{}-probe", cgroup::unique_name(&host.proc_root)?);
    let mut guard = host.guard(Guarded::Cgroup(cgroups.path_of(&name)))?;
    let mut tree = cgroups.create(&name)?;
    tree.quota_group("probe", Quota::from_percent(50.0, 100_000)?)?;
    tree.close().inspect_err(|_| guard.leave_to_warden())?;
    Ok(cgroups)
}
