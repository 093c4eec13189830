//! The main process's side: starts the warden and registers what to guard.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};

use super::line::{Guarded, Line};
use super::{MAX_GUARDED, clean, server};
use crate::{Error, Result};

/// How long a closing main process waits for the warden to remove what is still registered.
const CLOSE_WAIT: Duration = Duration::from_secs(30);

const WAY_OUT: &str =
    "run again; if this run is then killed, remove by hand what it has made so far (reprieve-*)";

/// The warden of this process. Dropping it removes what is still guarded, and waits for that for a bounded time.
#[derive(Debug)]
pub struct Warden {
    exe: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    child: Child,
    guarded: BTreeSet<Guarded>,
}

impl Warden {
    /// Starts `exe` with `args`, which must call [`run`](super::run), as the warden of this process.
    ///
    /// The warden gets its own session, and ignores the signals that end the main process in an orderly way before its
    /// program even starts. So a signal from the terminal that ends the main process does not end the warden.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started.
    pub fn spawn(exe: &Path, args: &[&str]) -> Result<Warden> {
        let mut command = Command::new(exe);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec, only the async-signal-safe setsid(2) and signal(2) are called, and nothing is
        // allocated.
        unsafe {
            command.pre_exec(|| {
                server::ignore_signals();
                rustix::process::setsid()?;
                Ok(())
            });
        }
        let child = command
            .spawn()
            .map_err(|e| Error::io("start the warden", exe, e, "check that the program is executable"))?;
        let inner = Inner { child, guarded: BTreeSet::new() };
        Ok(Warden { exe: exe.to_path_buf(), inner: Mutex::new(inner) })
    }

    /// From now on, `object` does not outlive this process. Guarding it again changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an object that breaks the rules of [`Guarded`], or beyond [`MAX_GUARDED`]; [`Error::Io`] if the
    /// warden has ended.
    pub fn guard(&self, object: Guarded) -> Result<()> {
        object.check()?;
        let mut inner = self.lock();
        if inner.guarded.contains(&object) {
            return Ok(());
        }
        if inner.guarded.len() >= MAX_GUARDED {
            return Err(Error::invalid("guarded object", format!("{object:?}"), "at most 4096 at a time"));
        }
        self.send(&mut inner, &Line::Guard(object.clone()))?;
        inner.guarded.insert(object);
        Ok(())
    }

    /// Stops guarding `object`: it is gone, or is meant to stay.
    ///
    /// # Errors
    /// [`Error::Io`] if the warden has ended.
    pub fn release(&self, object: &Guarded) -> Result<()> {
        let mut inner = self.lock();
        if inner.guarded.remove(object) {
            self.send(&mut inner, &Line::Release(object.clone()))?;
        }
        Ok(())
    }

    /// The warden's PID.
    pub fn pid(&self) -> i32 {
        self.lock().child.id() as i32
    }

    fn send(&self, inner: &mut Inner, line: &Line) -> Result<()> {
        let ended = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let written = match (inner.child.try_wait(), &mut inner.child.stdin) {
            (Ok(None), Some(stdin)) => stdin.write_all(&line.encode()),
            _ => Err(ended),
        };
        written.map_err(|e| Error::io("write to the warden", &self.exe, e, WAY_OUT))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in a critical section leaves the state consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        let mut inner = self.lock();
        drop(inner.child.stdin.take());
        let pid = Pid::from_child(&inner.child);
        if let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            clean::wait_for_exit(&[pidfd], CLOSE_WAIT);
        }
        // Reaps it. A warden that is not done yet goes on by itself.
        let _ = inner.child.try_wait();
    }
}
