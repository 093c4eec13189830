//! A run of the workload `delete-free`: a program of the host runs to its end in the guest, and reports what it measured.
//!
//! The program reads the guest's clock, which runs on while a vCPU is descheduled. So delays are what the guest's other
//! vCPUs saw, and CPU times include time that the hypervisor took away unnoticed by the guest. The host does not sample the
//! guest's memory during such a run, because that would take CPU time from the vCPUs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reprieve_study::delete_free::{Answer, Options};
use reprieve_study::scenario::{BadScenario, PlannedRun};
use reprieve_study::{Observation, Scenario, derive};

use crate::bursts::Timing;
use crate::lab::{Booted, STOP_LIMIT, Work};
use crate::stimulus::Stimulus;
use crate::{Result, Step, VmError};

/// Time for filling the table and for the last frees, besides warm-up, window and the sleep of reader 0. Generous, because
/// the vCPUs of an emulated guest may be starved.
const SLACK: Duration = Duration::from_secs(120);
/// Where the guest keeps what the program printed (`guest/program.c`).
const OUTPUT: &str = "/tmp/program.out";

/// The programs in `directory` that a scenario's runs need; none if it has another workload.
///
/// # Errors
/// A scheme without a program.
pub fn needed(scenario: &Scenario, directory: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for planned in scenario.plan()? {
        let Some((scheme, _)) = Options::of(&planned.scenario, 0) else { continue };
        let path = directory.join(scheme);
        if !path.is_file() {
            let what = format!("the program of the scheme {scheme} in {}", directory.display());
            return Err(VmError::Missing { what, way_out: "build the programs with: make peers".into() });
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

impl Work<'_> {
    /// Runs the program under the condition, and reads its answer.
    pub(crate) fn run_program(
        &self,
        planned: &PlannedRun,
        booted: &mut Booted,
        neighbours: &mut [Booted],
        step: &mut Step,
    ) -> Result<Observation> {
        let other =
            || BadScenario::new("workload.kind", "is not delete-free, the only workload that is a program");
        let (scheme, options) = Options::of(&planned.scenario, planned.repetition).ok_or_else(other)?;
        self.start_neighbours(neighbours)?;
        let timing = Timing::from_now(self.scenario.run.seed);
        let host = &self.lab.host;
        let mut stimulus = Stimulus::apply(self.condition, &booted.machine, self.pcpus, host, timing)?;
        booted.link.start(&command(scheme, &options))?;
        let window = Instant::now() + Duration::from_millis(self.scenario.run.warmup_ms);
        stimulus.pause(self.condition, &booted.machine, window)?;
        step("is measured");
        let account = self.cpu_account(booted, neighbours, &stimulus)?;
        booted.link.wait_finished(Duration::from_millis(options.length_ms()) + SLACK)?;
        let spent = account.close(&self.lab.host.proc_root)?;
        drop(stimulus);
        self.still_there(neighbours, account.opened.elapsed())?;
        step("stops");
        booted.link.stop(STOP_LIMIT)?;
        let text = String::from_utf8_lossy(&booted.link.read_file(OUTPUT)?).into_owned();
        let answer = Answer::read(&text, scheme, &options)
            .map_err(|problem| VmError::guest(format!("{scheme}: {problem}")))?;
        let provenance = self.provenance(booted, spent, Vec::new());
        let mut out = answer.observe(planned, provenance);
        derive::cpu_given(&mut out);
        Ok(out)
    }
}

/// The line that starts a program.
fn command(scheme: &str, options: &Options) -> String {
    let arguments = options.arguments();
    let words = arguments.iter().map(|argument| format!(" argument={argument}"));
    words.fold(format!("program name={scheme}"), |line, word| line + &word)
}

#[cfg(test)]
mod tests {
    use reprieve_study::{GroundKind, overrides};

    use super::*;

    fn scenario(scheme: &str) -> Scenario {
        let text = format!(
            "name = 't'\ntitle = 't'\n[workload]\nkind = 'delete-free'\nscheme = '{scheme}'\nentries = 65536\n\
             reader_cpus = [0, 1]\n[conditions.c]\n"
        );
        overrides::read(&text, Some(GroundKind::Vm), &[]).unwrap()
    }

    #[test]
    fn a_program_s_command_is_one_line_within_the_guest_s_limits() {
        let scenario = scenario("seize");
        let (scheme, options) = Options::of(&scenario, 0).unwrap();
        let line = command(scheme, &options);
        assert!(line.starts_with("program name=seize argument=--entries argument=65536 argument=--readers"));
        assert!(line.contains(" argument=--reader-cpus argument=0,1 "));
        // Limits of guest/lab.h.
        assert!(line.len() < 4096 && options.arguments().len() <= 32);
    }

    #[test]
    fn a_scheme_without_a_program_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("seize"), "").unwrap();
        assert_eq!(needed(&scenario("seize"), dir.path()).unwrap(), [dir.path().join("seize")]);
        let error = needed(&scenario("siege"), dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("the program of the scheme siege in "), "{error}");
        assert!(error.ends_with("make peers"), "{error}");
    }
}
