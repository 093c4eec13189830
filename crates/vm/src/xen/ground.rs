//! The ground `xen`: prepares what runs have in common, and works through a scenario's plan.

use reprieve_study::Scenario;
use reprieve_study::ground::{self, Finished, Progress};
use reprieve_study::observation::Observation;
use reprieve_study::scenario::{BadScenario, PlannedRun};
use reprieve_study::units::MIB;

use super::image;
use super::lab::XenLab;
use super::settings::Settings;
use crate::error::VmError;
use crate::host::Host;
use crate::image::{Cache, ImageError};
use crate::qemu;

/// The ground, ready to run one scenario.
pub struct XenGround {
    lab: XenLab,
    scenario: Scenario,
}

impl XenGround {
    /// Gets everything ready: the packages and the images made of them.
    ///
    /// # Errors
    /// A scenario that this ground or this machine cannot run; packages or programs that are missing.
    pub fn prepare(
        scenario: Scenario,
        host: Host,
        cache: &Cache,
        progress: &mut dyn Progress,
    ) -> Result<XenGround, VmError> {
        check_machine(&scenario, &host)?;
        let qemu_version = qemu::version()?;
        let image = image::prepare(cache, false, &mut |what| progress.preparing(what)).map_err(way_out)?;
        Ok(XenGround { lab: XenLab { host, image, qemu_version }, scenario })
    }

    /// The lab, for single experiments.
    pub fn lab(&self) -> &XenLab {
        &self.lab
    }

    /// Works through the plan. A boot serves several repetitions of a condition, so only the first of them takes time.
    pub fn run(self, progress: &mut dyn Progress) -> Finished<VmError> {
        let mut ready = Vec::new();
        ground::finish(self.scenario, progress, |planned, step| {
            if !ready.iter().any(|one| is_of(one, planned)) {
                ready.extend(self.lab.boot(planned, step)?);
            }
            let index =
                ready.iter().position(|one| is_of(one, planned)).expect("a boot serves this run, too");
            Ok(ready.swap_remove(index))
        })
    }
}

fn is_of(observation: &Observation, planned: &PlannedRun) -> bool {
    (&observation.condition, observation.repetition, &observation.sweep)
        == (&planned.condition, planned.repetition, &planned.sweep)
}

/// Refuses what cannot be run here, before anything is downloaded.
///
/// # Errors
/// A key that real Xen cannot do, or more memory than is available.
pub fn check_machine(scenario: &Scenario, host: &Host) -> Result<(), VmError> {
    let available_bytes = host.proc_root.meminfo()?.available_bytes;
    for planned in scenario.plan()?.iter().filter(|planned| planned.repetition == 0) {
        let needed_bytes = Settings::of(planned)?.memory_bytes;
        if needed_bytes > available_bytes {
            let problem = format!(
                "the machine with its VMs takes {} MiB, more than the {} MiB that the host has available",
                needed_bytes / MIB,
                available_bytes / MIB
            );
            return Err(
                BadScenario::new(format!("conditions.{}.spinners", planned.condition), problem).into()
            );
        }
    }
    Ok(())
}

/// Says which distribution has the packages of this ground.
fn way_out(error: ImageError) -> VmError {
    match error {
        ImageError::UnknownPackage { package } => VmError::Missing {
            what: format!("the package {package}"),
            way_out: format!(
                "it is in Debian 12 (main), which has Xen {}: run apt-get update there, or run the scenario with --on \
                 sim",
                image::XEN_VERSION
            ),
        },
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_apt_does_not_know_are_missing_with_a_way_out() {
        let unknown = way_out(ImageError::UnknownPackage { package: "xen-utils-4.17".into() });
        assert!(matches!(unknown, VmError::Missing { .. }) && unknown.to_string().contains("--on sim"));
    }
}
