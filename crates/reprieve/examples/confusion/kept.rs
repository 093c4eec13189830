//! What explain saw in each run, kept beside the record, so that changed rules can be tried on it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use reprieve_linux::switches::{SwitchEvent, SwitchKind};
use serde_json::Value;

use crate::guest::Error;
use crate::record::{Record, Run, Verdict};
use crate::slices;

/// More than any look lasts.
const ALL: &str = "10min";

/// A folder with a file for each run.
#[derive(Clone, Debug)]
pub struct Kept(PathBuf);

impl Kept {
    /// Makes the folder, if it is not there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(folder: &Path) -> Result<Kept, std::io::Error> {
        std::fs::create_dir_all(folder)?;
        Ok(Kept(folder.into()))
    }

    /// Keeps what was seen in this run, in place of what was seen in an earlier try, and beside it the host's records of a vCPU's
    /// switches, a line each.
    ///
    /// # Errors
    /// The kernel's.
    pub fn put(&self, run: &Run, seen: &str, switches: &[SwitchEvent]) -> Result<(), std::io::Error> {
        if run.verdict.is_none() {
            return Ok(());
        }
        let file = self.file(run);
        std::fs::write(&file, seen)?;
        match std::fs::remove_file(file.with_extension("switches")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let lines: String =
            switches.iter().map(|event| format!("{} {:?}\n", event.time_ns, event.kind)).collect();
        if lines.is_empty() { Ok(()) } else { std::fs::write(file.with_extension("switches"), lines) }
    }

    fn file(&self, run: &Run) -> PathBuf {
        let Run { kernel, vcpus, cause, strength, repetition, .. } = run;
        self.0.join(format!("{kernel}-{vcpus}-{}-{strength}-{repetition}.reprieve", cause.name()))
    }

    /// Judges all runs anew, by this `reprieve`, and takes the truth about slices from the host's records anew. Runs without a verdict stay
    /// so.
    ///
    /// # Errors
    /// What was seen in a run is not there, or cannot be judged.
    pub fn judge(&self, reprieve: &Path, record: &mut Record) -> Result<(), Error> {
        let mut judged = BTreeSet::new();
        // The last try of a case is the one whose file is there.
        for run in record.runs.iter_mut().rev() {
            let file = self.file(run);
            if run.verdict.is_none() || !judged.insert(file.clone()) {
                continue;
            }
            let said =
                Command::new(reprieve).arg("explain").arg(&file).args(["--last", ALL, "--json"]).output()?;
            let value: Value = serde_json::from_slice(&said.stdout).map_err(|_| {
                format!("{}: {}", file.display(), String::from_utf8_lossy(&said.stderr).trim())
            })?;
            run.verdict = Some(Verdict::of(&value));
            if let Ok(text) = std::fs::read_to_string(file.with_extension("switches")) {
                let lost = run.truth.slices.map_or(0, |slices| slices.lost);
                run.truth.slices = slices::of(&text.lines().filter_map(event).collect::<Vec<_>>(), lost);
            }
        }
        Ok(())
    }
}

/// A line of the switch records.
fn event(line: &str) -> Option<SwitchEvent> {
    let (time_ns, kind) = line.split_once(' ')?;
    let kind = [SwitchKind::In, SwitchKind::OutPreempted, SwitchKind::OutVoluntary]
        .into_iter()
        .find(|known| format!("{known:?}") == kind)?;
    Some(SwitchEvent { thread_index: 0, time_ns: time_ns.parse().ok()?, cpu: None, kind })
}
