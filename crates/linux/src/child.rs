//! Child programs that must not outlive us.
//!
//! Source: PR_SET_PDEATHSIG(2const). The kernel ties the signal to the *thread* that spawned the child, and
//! forgets it when the child changes its user; so it is asked for last, just before the program starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

/// Lets the kernel kill the child with SIGKILL when the thread that spawns it ends.
///
/// Spawn it from a thread that lives as long as the child should. A parent that dies before the child could
/// ask is noticed: the program is then not started.
pub fn die_with_parent(command: &mut Command) {
    let owner = rustix::process::getpid();
    let ask = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(owner) {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: prctl and getppid are plain
    // system calls, and nothing is allocated.
    unsafe { command.pre_exec(ask) };
}
