//! Runs one program: starts it, waits for it with a limit, and makes sure that it has ended.
//!
//! Invariants: the program dies with this process, because it asks the kernel for that when it starts. However a run
//! ends, the program and its process group are killed, and the program is reaped. Its output goes to memory of fixed
//! size, so a program that never stops writing does no harm. Its output is not trusted. Source:
//! PR_SET_PDEATHSIG(2const), memfd_create(2), pidfd_open(2).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::child;
use reprieve_linux::signals::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::Result;
use crate::error::{ThreadsError, last_line};

/// The most that a program may write to each of stdout and stderr. Its result takes about 1 KiB.
const OUTPUT_BYTES: usize = 64 << 10;
/// A program's exit code when its own check failed.
const CHECK_FAILED: i32 = 1;
/// A program's exit code when the machine lacks something.
const MISSING: i32 = 69;

/// The output of a program that ended successfully.
#[derive(Debug)]
pub struct Said {
    program: String,
    stdout: String,
    stderr: String,
}

impl Said {
    /// Parses its stdout with `reader`.
    ///
    /// # Errors
    /// [`ThreadsError::Program`] with the problem that `reader` reports.
    pub fn read<T>(&self, reader: impl FnOnce(&str) -> Result<T, String>) -> Result<T> {
        reader(&self.stdout).map_err(|problem| self.failed(problem))
    }

    /// The error for this problem with the program.
    pub fn failed(&self, problem: String) -> ThreadsError {
        ThreadsError::Program { program: self.program.clone(), problem, words: last_line(&self.stderr) }
    }
}

/// Runs a program to its end. `ended` is called with its PID after it has ended but before it is reaped, while `/proc`
/// still has its CPU time.
///
/// # Errors
/// [`ThreadsError::Program`] if it fails or does not end within the limit; [`ThreadsError::Missing`] if it reports that the
/// machine lacks something; [`ThreadsError::Interrupted`]; [`ThreadsError::Io`].
pub fn run(
    path: &Path,
    arguments: &[String],
    limit: Duration,
    interrupt: &Interrupt,
    ended: impl FnOnce(i32),
) -> Result<Said> {
    let mut running = Running::start(path, arguments)?;
    let in_time = running.wait(limit, interrupt)?;
    let mut said = Said { program: name(path), stdout: String::new(), stderr: running.stderr.text()? };
    if !in_time {
        return Err(said.failed(format!("did not end within {} s and was killed", limit.as_secs())));
    }
    ended(running.child.id() as i32);
    let status = running.end()?;
    said.stdout = running.stdout.text()?;
    judge(status, said)
}

fn judge(status: ExitStatus, said: Said) -> Result<Said> {
    match status.code() {
        Some(0) => Ok(said),
        Some(CHECK_FAILED) => Err(said.failed("its own check of the freed memory failed".into())),
        Some(MISSING) => {
            let what = format!("something that {} needs", said.program);
            Err(ThreadsError::Missing { what, way_out: last_line(&said.stderr) })
        }
        _ => Err(said.failed(format!("ended with {status}"))),
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A running program. Dropping this kills it and its process group, and reaps it.
struct Running {
    child: Child,
    /// Becomes readable when the program has ended.
    exit: OwnedFd,
    status: Option<ExitStatus>,
    stdout: Output,
    stderr: Output,
}

impl Running {
    fn start(path: &Path, arguments: &[String]) -> Result<Running> {
        let (stdout, stderr) = (Output::new()?, Output::new()?);
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(stdout.handle()?).stderr(stderr.handle()?);
        // A Ctrl-C on the terminal must not reach the program: this process ends it, and keeps the runs finished
        // before.
        command.process_group(0);
        child::die_with_parent(&mut command);
        let doing = || format!("starting {}", path.display());
        let mut child = command.spawn().map_err(ThreadsError::io(doing()))?;
        match rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(exit) => Ok(Running { child, exit, status: None, stdout, stderr }),
            Err(errno) => {
                // Both fail only if the program has ended.
                let _ = child.kill();
                let _ = child.wait();
                Err(ThreadsError::io(doing())(errno))
            }
        }
    }

    /// Waits for the end. Returns `false` if the limit passes first.
    fn wait(&self, limit: Duration, interrupt: &Interrupt) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a limit is minutes");
            let mut fds = [PollFd::new(interrupt, PollFlags::IN), PollFd::new(&self.exit, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                // A signal may have raised the interrupt: check it again.
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(ThreadsError::io("waiting for a program")(errno)),
                Ok(0) => return Ok(false),
                Ok(_) if !fds[0].revents().is_empty() => return Err(ThreadsError::Interrupted),
                Ok(_) => return Ok(true),
            }
        }
    }

    /// Kills what is left of the process group, and returns the program's exit status: its own, if it ended by itself.
    fn end(&mut self) -> Result<ExitStatus> {
        // After it is reaped, another process may get its PID: never kill twice.
        if let Some(status) = self.status {
            return Ok(status);
        }
        // Fails only if the whole group has ended.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let status = self.child.wait().map_err(ThreadsError::io("waiting for a program"))?;
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if another thread has reaped it.
        let _ = self.end();
    }
}

/// A program's output, in memory of fixed size. Writes beyond it fail.
struct Output(File);

impl Output {
    fn new() -> Result<Output> {
        let made = || -> io::Result<File> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("output", flags)?;
            rustix::fs::ftruncate(&file, OUTPUT_BYTES as u64)?;
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file.into())
        };
        made().map(Output).map_err(ThreadsError::io("making room for a program's output"))
    }

    fn handle(&self) -> Result<File> {
        self.0.try_clone().map_err(ThreadsError::io("handing out room for a program's output"))
    }

    fn text(&self) -> Result<String> {
        let mut bytes = vec![0; OUTPUT_BYTES];
        self.0.read_exact_at(&mut bytes, 0).map_err(ThreadsError::io("reading a program's output"))?;
        // The unused rest is zeros.
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(OUTPUT_BYTES));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
