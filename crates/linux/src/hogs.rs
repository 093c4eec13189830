//! Hogs: child processes that burn one CPU each, to make host CPUs contended.
//!
//! Processes and not threads, so that their CPU time is not booked on the measuring process. The program
//! re-executes itself: [`Hog::spawn`] starts it with a hidden subcommand whose body is [`spin`].
//! Invariants: a hog does not outlive its owner: it is killed and reaped on drop, and by the kernel
//! (PR_SET_PDEATHSIG) if the owner dies first. The kernel ties that to the *thread* that spawned the hog:
//! spawn hogs from a thread that lives as long as they should. Under sched_autogroup hogs compete with
//! what runs in the same session as one group. Source: PR_SET_PDEATHSIG(2const), sched(7).

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::threads;

/// Tells the hog who its owner is, so that it notices an owner that died before the hog could ask the
/// kernel to be killed with it.
const OWNER_VARIABLE: &str = "REPRIEVE_HOG_OWNER_PID";

/// A child process that burns CPU until it is dropped.
#[derive(Debug)]
pub struct Hog {
    child: Child,
}

impl Hog {
    /// Starts `exe` with `args`, which must call [`spin`], at nice 0, on `cpu` only if one is given.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started or the CPU is not online, [`Error::NotPermitted`] if this
    /// process is niced and may not start one at nice 0.
    pub fn spawn(exe: &Path, args: &[&str], cpu: Option<usize>) -> Result<Hog> {
        let child = Command::new(exe)
            .args(args)
            .env(OWNER_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Error::io("start", exe, e, "check that the program is there and executable"))?;
        // From here on dropping `hog` cleans up.
        let hog = Hog { child };
        if threads::nice(hog.pid())? != 0 {
            threads::set_nice(hog.pid(), 0)?;
        }
        if let Some(cpu) = cpu {
            threads::set_affinity(hog.pid(), &[cpu])?;
        }
        Ok(hog)
    }

    /// The hog's process id, which is also the id of its only thread.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Fails only if the hog has ended already; it is reaped in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of the hidden subcommand: burns CPU until killed.
///
/// Ends the process at once if its owner is gone, or if it was not started by [`Hog::spawn`].
pub fn spin() -> ! {
    let armed = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // Checked after arming: an owner that dies from here on takes the hog with it.
    if armed.is_err() || !owner_is_parent() {
        std::process::exit(1);
    }
    let mut value = 1u64;
    loop {
        // Plain arithmetic: a pause instruction would make a hypervisor below deschedule the hog.
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

fn owner_is_parent() -> bool {
    let owner: Option<i32> = std::env::var(OWNER_VARIABLE).ok().and_then(|pid| pid.parse().ok());
    owner.is_some() && owner == rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get())
}
