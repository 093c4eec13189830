//! One program: started, waited for, surely ended.
//!
//! Invariants: it dies with this process, by its own request to the kernel; whatever way a run ends, it and all that it
//! started are killed and it is waited for. Its output goes to memory of a fixed size, so that one that never stops
//! writing takes nothing. Nothing that it says is trusted. Source: PR_SET_PDEATHSIG(2const), memfd_create(2),
//! pidfd_open(2).

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

use crate::error::{ThreadsError, last_line};

/// Room for each of stdout and stderr. A program's line takes about 1 KiB.
const OUTPUT_BYTES: usize = 64 << 10;
/// Exit codes of the programs: a check failed; the machine lacks something.
const CHECK_FAILED: i32 = 1;
const MISSING: i32 = 69;

/// What a program that ended well said.
#[derive(Debug)]
pub struct Said {
    program: String,
    stdout: String,
    stderr: String,
}

impl Said {
    /// What it printed, as `reader` reads it.
    ///
    /// # Errors
    /// [`ThreadsError::Program`] with the problem that `reader` has with it.
    pub fn read<T>(&self, reader: impl FnOnce(&str) -> Result<T, String>) -> Result<T, ThreadsError> {
        reader(&self.stdout).map_err(|problem| self.failed(problem))
    }

    /// The error that this problem with it is.
    pub fn failed(&self, problem: String) -> ThreadsError {
        ThreadsError::Program { program: self.program.clone(), problem, words: last_line(&self.stderr) }
    }
}

/// Runs a program to its end. `ended` is called with its process id when it has ended and was not yet waited for, so
/// that `/proc` still has its books.
///
/// # Errors
/// [`ThreadsError::Program`] when it fails or has not ended within the limit, [`ThreadsError::Missing`] when it says
/// that the machine lacks something, [`ThreadsError::Interrupted`], [`ThreadsError::Io`].
pub fn run(
    path: &Path,
    arguments: &[String],
    limit: Duration,
    interrupt: &Interrupt,
    ended: impl FnOnce(i32),
) -> Result<Said, ThreadsError> {
    let mut running = Running::start(path, arguments)?;
    let in_time = running.wait(limit, interrupt)?;
    let mut said = Said { program: name(path), stdout: String::new(), stderr: running.stderr.text()? };
    if !in_time {
        return Err(said.failed(format!("had not ended after {} s, and was killed", limit.as_secs())));
    }
    ended(running.child.id() as i32);
    let status = running.end()?;
    said.stdout = running.stdout.text()?;
    judge(status, said)
}

fn judge(status: ExitStatus, said: Said) -> Result<Said, ThreadsError> {
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

/// A program that was started. Dropped, it and its process group are killed, and it is waited for.
struct Running {
    child: Child,
    /// Readable when it has ended.
    exit: OwnedFd,
    status: Option<ExitStatus>,
    stdout: Output,
    stderr: Output,
}

impl Running {
    fn start(path: &Path, arguments: &[String]) -> Result<Running, ThreadsError> {
        let (stdout, stderr) = (Output::new()?, Output::new()?);
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(stdout.handle()?).stderr(stderr.handle()?);
        // A terminal's Ctrl-C is for us: we end the program, and keep what had finished before.
        command.process_group(0);
        child::die_with_parent(&mut command);
        let doing = || format!("starting {}", path.display());
        let mut child = command.spawn().map_err(ThreadsError::io(doing()))?;
        match rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(exit) => Ok(Running { child, exit, status: None, stdout, stderr }),
            Err(errno) => {
                // Both fail only if it has ended.
                let _ = child.kill();
                let _ = child.wait();
                Err(ThreadsError::io(doing())(errno))
            }
        }
    }

    /// Waits for the end; `false` if it has not ended within the limit.
    fn wait(&self, limit: Duration, interrupt: &Interrupt) -> Result<bool, ThreadsError> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a limit is minutes");
            let mut fds = [PollFd::new(interrupt, PollFlags::IN), PollFd::new(&self.exit, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                // A signal: it may be the user's.
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(ThreadsError::io("waiting for a program")(errno)),
                Ok(0) => return Ok(false),
                Ok(_) if !fds[0].revents().is_empty() => return Err(ThreadsError::Interrupted),
                Ok(_) => return Ok(true),
            }
        }
    }

    /// Kills what is left of its process group, and takes its exit status: that of its own end if it had ended before.
    fn end(&mut self) -> Result<ExitStatus, ThreadsError> {
        // Once it was waited for, its id may be somebody else's.
        if let Some(status) = self.status {
            return Ok(status);
        }
        // Fails only if all of the group have ended.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let status = self.child.wait().map_err(ThreadsError::io("waiting for a program"))?;
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if it was waited for elsewhere.
        let _ = self.end();
    }
}

/// What a program writes, in memory of a fixed size; what is beyond is refused to it.
struct Output(File);

impl Output {
    fn new() -> Result<Output, ThreadsError> {
        let made = || -> io::Result<File> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("output", flags)?;
            rustix::fs::ftruncate(&file, OUTPUT_BYTES as u64)?;
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file.into())
        };
        made().map(Output).map_err(ThreadsError::io("making room for a program's output"))
    }

    fn handle(&self) -> Result<File, ThreadsError> {
        self.0.try_clone().map_err(ThreadsError::io("handing out room for a program's output"))
    }

    fn text(&self) -> Result<String, ThreadsError> {
        let mut bytes = vec![0; OUTPUT_BYTES];
        self.0.read_exact_at(&mut bytes, 0).map_err(ThreadsError::io("reading a program's output"))?;
        // The rest of the room is zeros.
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(OUTPUT_BYTES));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
