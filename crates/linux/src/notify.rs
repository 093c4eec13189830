//! Tells others that something has happened: signals a process, or runs a program for a bounded time.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process,
};

use crate::signals::Interrupt;
use crate::{Error, Result, child, clock};

/// A process that can be signalled. If it ends, nothing is ever sent to another one that gets its number.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    pidfd: OwnedFd,
}

impl Process {
    /// Finds a process that this one may signal.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is none, [`Error::NotPermitted`] if it may not be signalled.
    pub fn find(pid: i32) -> Result<Process> {
        let failed = |error: rustix::io::Errno| {
            Error::task("signal", format!("/proc/{pid}"), error, "run this as the same user, or as root")
        };
        let number = Pid::from_raw(pid).filter(|_| pid > 0).ok_or(rustix::io::Errno::SRCH).map_err(failed)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(failed)?;
        test_kill_process(number).map_err(failed)?;
        Ok(Process { pid, pidfd })
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// As of [`Process::find`].
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let way_out = "run this as the same user, or as root";
        pidfd_send_signal(&self.pidfd, signal)
            .map_err(|error| Error::task("signal", format!("/proc/{}", self.pid), error, way_out))
    }
}

/// The signal of a name, with or without SIG: those that people use to tell a process something.
pub fn signal_named(name: &str) -> Option<Signal> {
    let known = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("ABRT", Signal::ABORT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("TERM", Signal::TERM),
        ("CONT", Signal::CONT),
        ("STOP", Signal::STOP),
        ("KILL", Signal::KILL),
    ];
    let name = name.strip_prefix("SIG").unwrap_or(name);
    known.into_iter().find_map(|(known, signal)| (known == name).then_some(signal))
}

/// A program that is killed is gone within this time.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code; `None` if by a signal.
    Itself(Option<i32>),
    /// It took too long, and was killed.
    TooLong,
    /// This process is to end, so it was killed.
    Interrupted,
}

/// Runs a program, without a shell, for at most so long. Its output goes to stderr. When it has ended, everything still in the process
/// group in which it was started is killed, unless this process may not kill it. Children that left that group go on. If this process
/// is killed meanwhile, the program is, too.
///
/// Call it from a thread that lives as long as the program should: see [`child::die_with_parent`].
///
/// # Errors
/// [`Error::Io`] if it cannot be started.
pub fn run(
    program: &[String],
    variables: &[(&str, String)],
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<Ended> {
    let (name, arguments) = program.split_first().map_or(("", program), |(name, rest)| (name.as_str(), rest));
    let failed = |error| Error::io("run", name, error, "check that the program is there and executable");
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    if interrupt.is_raised() {
        return Ok(Ended::Interrupted);
    }
    let mut command = Command::new(name);
    command.args(arguments).envs(variables.iter().map(|(name, value)| (*name, value)));
    command.stdin(Stdio::null()).stdout(stderr).process_group(0);
    child::die_with_parent(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let ended = wait(&child, limit, Some(interrupt));
    // Before it is reaped, nobody else can have its number.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    // It may have moved to another process group, which the line above does not reach.
    let _ = child.kill();
    if ended.is_some() && wait(&child, KILLED_WITHIN, None).is_some() {
        // A program of another user, as by sudo, or one that waits in the kernel: nobody waits for it here.
        let _ = std::thread::Builder::new().spawn(move || child.wait());
        return Ok(ended.unwrap_or(Ended::TooLong));
    }
    let status = child.wait().map_err(failed)?;
    Ok(ended.unwrap_or(Ended::Itself(status.code())))
}

/// Waits until it ends, which is `None`, or must.
fn wait(child: &Child, limit: Duration, interrupt: Option<&Interrupt>) -> Option<Ended> {
    let Ok(pidfd) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return Some(Ended::TooLong);
    };
    let until_ns = clock::now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    loop {
        let left_ns = until_ns.saturating_sub(clock::now_ns());
        let mut polled = vec![PollFd::new(&pidfd, PollFlags::IN)];
        polled.extend(interrupt.map(|interrupt| PollFd::new(interrupt, PollFlags::IN)));
        // A signal to this process ends the wait early, and shows in the token.
        let _ = poll(&mut polled, Some(&clock::timespec(left_ns)));
        let is_there = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        match () {
            () if is_there(&polled[0]) => return None,
            () if interrupt.is_some_and(Interrupt::is_raised) => return Some(Ended::Interrupted),
            () if left_ns == 0 => return Some(Ended::TooLong),
            () => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sh(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(String::from).to_vec()
    }

    #[test]
    fn a_program_ends_itself_or_is_ended_with_its_children() {
        let interrupt = Interrupt::manual().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let run = |script: &str, limit_ms| {
            let variables = [("REPRIEVE_X", "a b".to_string())];
            super::run(&sh(script), &variables, Duration::from_millis(limit_ms), &interrupt).unwrap()
        };
        assert_eq!(run("test \"$REPRIEVE_X\" = 'a b' && exit 7", 60_000), Ended::Itself(Some(7)));
        let began = Instant::now();
        let path = folder.path().join("late");
        assert_eq!(run(&format!("(sleep 2; touch {}) & sleep 100", path.display()), 100), Ended::TooLong);
        assert!(began.elapsed() < Duration::from_secs(50));
        std::thread::sleep(Duration::from_millis(2_500));
        assert!(!path.exists());
        interrupt.raise();
        assert_eq!(run("sleep 100", 60_000), Ended::Interrupted);
    }

    #[test]
    fn a_program_that_left_its_process_group_is_ended_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let script =
            "setpgrp(0, getpgrp(getppid())); open(F, '>', $ARGV[0]); print F $$; close(F); sleep 100";
        let program = ["perl", "-e", script, path.to_str().unwrap()].map(String::from);
        let (interrupt, limit) = (Interrupt::manual().unwrap(), Duration::from_secs(2));
        assert_eq!(run(&program, &[], limit, &interrupt).unwrap(), Ended::TooLong);
        let pid = std::fs::read_to_string(path).unwrap();
        assert!(!std::path::Path::new("/proc").join(pid).exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let interrupt = Interrupt::manual().unwrap();
        let run = |program: &[String]| run(program, &[], Duration::from_secs(1), &interrupt);
        assert!(run(&["/nowhere/program".into()]).is_err() && run(&[]).is_err());
    }

    #[test]
    fn a_process_is_signalled_and_a_missing_one_is_not_found() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::find(child.id() as i32).unwrap();
        process.signal(signal_named("SIGTERM").unwrap()).unwrap();
        assert_eq!(child.wait().unwrap().code(), None);
        assert!(process.signal(Signal::TERM).is_err(), "it is gone");
        assert!(Process::find(-1).is_err() && Process::find(i32::MAX).is_err());
        assert_eq!(signal_named("WINCH"), None);
    }
}
