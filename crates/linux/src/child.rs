//! Child programs that must not outlive this process or exceed given limits.
//!
//! The kernel ties the parent-death signal to the *thread* that spawned the child, and drops it when the child changes
//! its user. So the child requests it last, just before its program starts. Source: PR_SET_PDEATHSIG(2const),
//! setrlimit(2).

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal};

/// Makes the kernel kill the child with SIGKILL when the thread that spawned it ends.
///
/// Spawn it from a thread that lives as long as the child should. If the parent dies before the child has made the
/// request, the program is not started.
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

/// Limits the child's address space, and forbids it core dumps and writing to files.
pub fn confine(command: &mut Command, address_space_bytes: u64) {
    let limits = [(Resource::As, address_space_bytes), (Resource::Core, 0), (Resource::Fsize, 0)];
    let set = move || {
        for (resource, most) in limits {
            rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        Ok(())
    };
    // SAFETY: setrlimit is a plain system call, and nothing is allocated between fork and exec.
    unsafe { command.pre_exec(set) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_child_writes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let run = |confined: bool| {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' XFSZ; echo x > file"]).current_dir(&folder);
            command.stderr(std::process::Stdio::null());
            if confined {
                confine(&mut command, 1 << 30);
            }
            command.status().unwrap().success()
        };
        assert!(run(false));
        assert!(!run(true));
    }
}
