//! The ground `xen`: prepares what runs have in common, and works through a scenario's plan.

use std::path::PathBuf;

use reprieve_study::ground::{self, Finished, Progress};
use reprieve_study::scenario::{BadScenario, PlannedRun};
use reprieve_study::units::MIB;
use reprieve_study::{Observation, Scenario};

use super::image;
use super::lab::XenLab;
use super::settings::Settings;
use crate::image::{Cache, ImageError};
use crate::{Host, Result, VmError, qemu};

/// A run takes about this time where the host is not busy, s: nearly all of it is booting.
const RUN_S: u64 = 60;

/// Real Xen in deterministic emulation.
pub struct XenGround {
    /// This machine.
    pub host: Host,
    /// Where images are kept.
    pub cache: PathBuf,
}

impl ground::Ground for XenGround {
    type Error = VmError;

    fn length(scenario: &Scenario) -> String {
        let runs = scenario.runs();
        format!("{runs} runs, about {} s", runs * RUN_S)
    }

    fn check(&self, scenario: &Scenario) -> Result<()> {
        check_machine(scenario, &self.host)?;
        Ok(Cache::new(self.cache.clone()).map(drop)?)
    }

    /// A boot serves several repetitions of a condition, so only the first of them takes time.
    fn run(&self, scenario: Scenario, progress: &mut dyn Progress) -> Finished<VmError> {
        let lab = match self.lab(&scenario, progress) {
            Ok(lab) => lab,
            Err(error) => return Finished::failed(scenario, error),
        };
        let mut ready = Vec::new();
        ground::finish(scenario, progress, |planned, step| {
            if !ready.iter().any(|one| is_of(one, planned)) {
                ready.extend(lab.boot(planned, step)?);
            }
            let index =
                ready.iter().position(|one| is_of(one, planned)).expect("a boot serves this run, too");
            Ok(ready.swap_remove(index))
        })
    }
}

impl XenGround {
    /// What the runs share: the packages, and the images made of them.
    fn lab(&self, scenario: &Scenario, progress: &mut dyn Progress) -> Result<XenLab> {
        check_machine(scenario, &self.host)?;
        let qemu_version = qemu::version()?;
        let cache = Cache::new(self.cache.clone())?;
        let image = image::prepare(&cache, &mut |what| progress.preparing(what)).map_err(way_out)?;
        Ok(XenLab { host: self.host.clone(), image, qemu_version })
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
pub fn check_machine(scenario: &Scenario, host: &Host) -> Result<()> {
    let available_bytes = host.proc_root.available_memory_bytes()?;
    for planned in scenario.plan()?.iter().filter(|planned| planned.repetition == 0) {
        let needed_bytes = Settings::of(planned)?.memory_bytes;
        if needed_bytes > available_bytes {
            let problem = format!(
                "the machine with its VMs takes {} MiB, more than the {} MiB that the host has available",
                needed_bytes / MIB,
                available_bytes / MIB
            );
            let key = format!("conditions.{}.spinners", planned.condition);
            return Err(BadScenario::new(key, problem).into());
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
