//! Hogs: child processes that burn one CPU each, to make host CPUs contended.
//!
//! Hogs are processes, so that their CPU time is not counted for the measuring process. The program re-executes itself:
//! [`Hog::spawn`] starts it with a hidden subcommand whose body is [`spin`]. Under sched_autogroup, hogs and everything
//! else in the same session compete as one group.
//!
//! Invariant: a hog does not outlive its owner. Dropping kills and reaps it, and the kernel kills it if the owner dies
//! first (PR_SET_PDEATHSIG). The kernel ties that to the *thread* that spawned the hog, so spawn hogs from a thread
//! that lives as long as they should. Source: PR_SET_PDEATHSIG(2const), sched(7).

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::{Error, Result, threads};

/// Holds the owner's PID, so that a hog notices if its owner died before the hog could arm the parent-death signal.
const OWNER_VARIABLE: &str = "REPRIEVE_HOG_OWNER_PID";

/// A child process that burns CPU until it is dropped.
#[derive(Debug)]
pub struct Hog {
    child: Child,
}

impl Hog {
    /// Starts `exe` with `args`, which must call [`spin`], at nice 0. If `cpu` is given, the hog is bound to it.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started or the CPU is not online; [`Error::NotPermitted`] if this process has a nice
    /// value above 0 and may not lower the hog's.
    pub fn spawn(exe: &Path, args: &[&str], cpu: Option<usize>) -> Result<Hog> {
        let child = Command::new(exe)
            .args(args)
            .env(OWNER_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Error::io("start", exe, e, "check that the program is there and executable"))?;
        // From here on, dropping `hog` cleans up.
        let hog = Hog { child };
        if threads::nice(hog.pid())? != 0 {
            threads::set_nice(hog.pid(), 0)?;
        }
        if let Some(cpu) = cpu {
            threads::set_affinity(hog.pid(), &[cpu])?;
        }
        Ok(hog)
    }

    /// The hog's PID, which is also the id of its only thread.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Fails only if the hog has already ended; waiting reaps it in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of the hidden subcommand: burns CPU until killed.
///
/// Ends the process at once if its owner has died, or if [`Hog::spawn`] did not start it.
pub fn spin() -> ! {
    let armed = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // Check after arming: if the owner dies from here on, the kernel kills the hog.
    if armed.is_err() || !owner_is_parent() {
        std::process::exit(1);
    }
    let mut value = 1u64;
    loop {
        // Plain arithmetic: at a pause instruction, a hypervisor below could deschedule the hog.
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

fn owner_is_parent() -> bool {
    let owner: Option<i32> = std::env::var(OWNER_VARIABLE).ok().and_then(|pid| pid.parse().ok());
    owner.is_some() && owner == rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get())
}
