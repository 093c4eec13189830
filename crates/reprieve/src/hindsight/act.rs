//! The thread that acts. Its queue is bounded: what does not fit is said and left out.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reprieve_hindsight::{day, dump};
use reprieve_linux::notify::{self, Ended};
use reprieve_linux::signals::Interrupt;

use super::rules::{Action, Rule};
use crate::failure::Failure;
use crate::output;

/// Jobs that wait.
const MOST_JOBS: usize = 64;
/// Time between two dumps.
const BETWEEN_DUMPS: Duration = Duration::from_secs(60);
/// How long a program may run.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Actions of a rule whose condition holds.
pub struct Job {
    /// The rule.
    pub rule: Arc<Rule>,
    /// Which of its actions.
    pub actions: Range<usize>,
    /// What was measured.
    pub value: String,
    /// When, by the clock of the day, ns.
    pub day_ns: u64,
}

/// The thread's owner.
pub struct Actor {
    jobs: SyncSender<Job>,
    thread: JoinHandle<()>,
}

impl Actor {
    /// Starts it, for this ring.
    pub fn start(folder: &Path, most_dumps: usize, interrupt: &Interrupt) -> Result<Actor, Failure> {
        let (jobs, to_do) = sync_channel(MOST_JOBS);
        let worker = Worker {
            folder: folder.into(),
            most_dumps,
            interrupt: interrupt.clone(),
            last_dump: None,
            to_do,
        };
        let started = std::thread::Builder::new().name("act".into()).spawn(move || worker.run());
        let thread = started.map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Actor { jobs, thread })
    }

    /// Takes a job, without waiting.
    pub fn take(&self, job: Job) {
        if job.actions.is_empty() {
            return;
        }
        if let Err(error) = self.jobs.try_send(job) {
            output::say(&format!("reprieve: too much to do, so an action is left out: {error}"));
        }
    }

    /// Waits until all is done. Programs are ended if the process is to end.
    pub fn end(self) {
        drop(self.jobs);
        let _ = self.thread.join();
    }
}

struct Worker {
    folder: PathBuf,
    most_dumps: usize,
    interrupt: Interrupt,
    last_dump: Option<(Instant, PathBuf)>,
    to_do: Receiver<Job>,
}

impl Worker {
    fn run(mut self) {
        while let Ok(job) = self.to_do.recv() {
            let mut dumped = None;
            for action in &job.rule.actions[job.actions.clone()] {
                if let Err(problem) = self.act(action, &job, &mut dumped) {
                    output::say(&format!("reprieve: {}: {problem}", job.rule.threshold.text()));
                }
            }
        }
    }

    /// Does it. `dumped` is the dump of this job.
    fn act(&mut self, action: &Action, job: &Job, dumped: &mut Option<PathBuf>) -> Result<(), String> {
        match action {
            Action::Dump => {
                *dumped = Some(self.dump(job)?);
                Ok(())
            }
            Action::Signal(process, signal) => process.signal(*signal).map_err(|error| error.to_string()),
            Action::Run(program) => self.program(program, job, dumped.as_deref()),
        }
    }

    /// Keeps the ring. Within a minute of a dump, that one has to do.
    fn dump(&mut self, job: &Job) -> Result<PathBuf, String> {
        if let Some((made, path)) = self.last_dump.as_ref().filter(|(made, _)| made.elapsed() < BETWEEN_DUMPS)
        {
            output::say(&format!(
                "reprieve: no further dump within a minute: {} is {} s old",
                path.display(),
                made.elapsed().as_secs()
            ));
            return Ok(path.clone());
        }
        let made = dump::dump(&self.folder, job.rule.threshold.metric(), job.day_ns, self.most_dumps);
        let path = made.map_err(|error| format!("no dump could be made: {error}"))?;
        output::say(&format!("reprieve: kept in {0}; judge it by: reprieve explain {0}", path.display()));
        self.last_dump = Some((Instant::now(), path.clone()));
        Ok(path)
    }

    fn program(&self, program: &[String], job: &Job, dumped: Option<&Path>) -> Result<(), String> {
        let mut variables = vec![
            ("REPRIEVE_THRESHOLD", job.rule.threshold.text().to_string()),
            ("REPRIEVE_METRIC", job.rule.threshold.metric().to_string()),
            ("REPRIEVE_VALUE", job.value.clone()),
            ("REPRIEVE_TIME", day::text(job.day_ns)),
            ("REPRIEVE_HINDSIGHT", self.folder.display().to_string()),
        ];
        variables.extend(dumped.map(|path| ("REPRIEVE_DUMP", path.display().to_string())));
        let name = &program[0];
        let ended = notify::run(program, &variables, RUN_LIMIT, &self.interrupt);
        match ended.map_err(|error| error.to_string())? {
            Ended::Itself(Some(0)) => Ok(()),
            Ended::Itself(Some(code)) => Err(format!("{name} ended with exit code {code}")),
            Ended::Itself(None) => Err(format!("{name} was ended by a signal")),
            Ended::TooLong => Err(format!("{name} took more than {} s and was ended", RUN_LIMIT.as_secs())),
            Ended::Interrupted => Err(format!("{name} was ended, because this process ends")),
        }
    }
}
