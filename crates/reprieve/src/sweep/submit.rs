//! `reprieve sweep submit`: gives what is left of a sweep to Slurm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use reprieve_linux::signals::Interrupt;
use reprieve_study::scenario::PlannedRun;
use reprieve_study::{Observation, units};
use reprieve_sweep::shard::{self, Runner, Standing};
use reprieve_sweep::slurm::{self, Job};
use reprieve_sweep::{Plan, Shard, SweepError, file};

use super::Simulator;
use crate::cli::sweep::SubmitSweep;
use crate::failure::Failure;
use crate::output;

/// How long runs are done here, to learn how long they take. Their results count.
const TRIAL: Duration = Duration::from_secs(3);

/// Runs the verb.
pub fn submit(plan: &Plan, arguments: &SubmitSweep) -> Result<(), Failure> {
    let folder = absolute(plan.folder())?;
    let program = absolute(&std::env::current_exe().map_err(|error| Failure::Failed(error.to_string()))?)?;
    let logs = folder.join("slurm");
    if let Some(option) =
        arguments.options.iter().find(|option| option.starts_with("--array") || option.starts_with("-a"))
    {
        return Err(Failure::Usage(format!(
            "{option}: the array is made here; set --tasks and --throttle before --"
        )));
    }
    let (left, each) = trial(plan)?;
    if left == 0 {
        return output::print(&format!(
            "All runs are done. The table: reprieve sweep merge {}\n",
            folder.display()
        ));
    }
    let tasks = arguments.tasks.map_or_else(|| slurm::tasks(left, each), u64::from);
    let job = Job { program: &program, folder: &folder, logs: &logs, tasks, throttle: arguments.throttle };
    fs::create_dir_all(&logs).map_err(|error| Failure::Failed(format!("{}: {error}", logs.display())))?;
    let (array, merge) = (logs.join("array.sh"), logs.join("merge.sh"));
    for (path, text) in [(&array, job.array()), (&merge, job.merge())] {
        file::put(path, text.as_bytes())?;
    }
    let about = units::duration(each.as_nanos() as f64 * left as f64 / tasks as f64);
    let options = arguments.options.iter().map(|option| format!("{option} ")).collect::<String>();
    if arguments.dry_run {
        return output::print(&format!(
            "{left} runs are left: {tasks} tasks of about {about} each. Nothing was submitted. The same by hand:\n\
             sbatch {options}{}\nsbatch {options}--dependency=afterany:JOB {}\n",
            array.display(),
            merge.display()
        ));
    }
    let first = sbatch(&array, None, &arguments.options)?;
    let second = sbatch(&merge, Some(&first), &arguments.options).map_err(|failure| {
        Failure::Failed(format!("array job {first} is submitted, and the job that merges is not: {failure}"))
    })?;
    output::print(&format!(
        "Submitted array job {first} of {tasks} tasks, about {about} each, and job {second}, which merges once all have ended.\n\
         How far it is:      reprieve sweep status {0}\n\
         Tasks that wait:    squeue -j {first},{second}\n\
         If some are lost:   the same command again, once these jobs have ended\n",
        folder.display()
    ))
}

/// A path that Slurm and the shell take as it is.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let absolute =
        fs::canonicalize(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    if !slurm::is_plain(&absolute) {
        let problem =
            "Slurm reads some of its letters otherwise; use a path of letters, digits, and /_.,:@+=- alone";
        return Err(Failure::Usage(format!("{}: {problem}", absolute.display())));
    }
    Ok(absolute)
}

/// Does runs for a moment. Gives how many are left, and how long one takes.
fn trial(plan: &Plan) -> Result<(u64, Duration), Failure> {
    let interrupt = Interrupt::install()?;
    let brief = Brief { simulator: Simulator::new(interrupt.clone()), began: OnceLock::new() };
    let mut last = Standing::default();
    let ended = shard::run(plan, Shard::ALL, 1, &brief, &mut |standing| {
        brief.began.get_or_init(Instant::now);
        last = standing;
    });
    match ended {
        Ok(_) => {}
        Err(SweepError::Interrupted) if !interrupt.is_raised() => {}
        Err(error) => return Err(error.into()),
    }
    let took = brief.began.get().map_or(Duration::ZERO, Instant::elapsed);
    let each = took / u32::try_from(last.now).unwrap_or(u32::MAX).max(1);
    Ok((last.runs - last.before - last.now, each))
}

/// Begins no further run after a time. The last one ends as any other.
struct Brief {
    simulator: Simulator,
    /// When the first run began: before, plan and parts are read.
    began: OnceLock<Instant>,
}

impl Runner for Brief {
    fn run(&self, run: &PlannedRun, _: &(dyn Fn() -> bool + Sync)) -> Option<Result<Observation, String>> {
        self.simulator.run(run, &|| self.simulator.is_stopped())
    }

    fn is_stopped(&self) -> bool {
        self.simulator.is_stopped() || self.began.get().is_some_and(|began| began.elapsed() >= TRIAL)
    }
}

/// Submits a script, and gives the number of the job.
fn sbatch(script: &Path, after: Option<&str>, options: &[String]) -> Result<String, Failure> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").args(options).stdin(Stdio::null());
    command.args(after.map(|job| format!("--dependency=afterany:{job}"))).arg(script);
    let output = command.output().map_err(|error| {
        Failure::Missing(format!(
            "sbatch: {error}; run this where Slurm's commands are, or start the shards by other means: docs/sweeps.md"
        ))
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    // With several clusters it is `job;cluster`.
    let job = said.trim().split(';').next().unwrap_or_default();
    if !output.status.success() || job.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("sbatch {}: {}", script.display(), why.trim())));
    }
    Ok(job.into())
}
