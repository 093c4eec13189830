//! Stops one thread of another process without a signal or notice, as a hypervisor stops a vCPU.
//!
//! Invariant: the thread goes on when the guard is dropped, and also when the guard's owner dies, because the kernel
//! then ends the tracing. Source: ptrace(2), PTRACE_SEIZE and PTRACE_INTERRUPT, which send no signal.

use std::io;
use std::marker::PhantomData;

use super::to_pid;
use crate::error::{Error, Result, thread_path};

const WAY_OUT: &str = "run as the user who started the process, with no debugger attached to it, where ptrace is allowed \
                       (kernel.yama.ptrace_scope up to 1)";

/// A stopped thread; dropping this lets it go on.
#[derive(Debug)]
pub struct Stopped {
    tid: i32,
    /// Makes this `!Send`: only the thread that stopped it can let it go on.
    _thread: PhantomData<*mut ()>,
}

impl Stopped {
    /// Stops thread `tid` of a process of the same user, and waits until it has stopped.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such thread; [`Error::NotPermitted`], also if another process traces it.
    pub fn stop(tid: i32) -> Result<Stopped> {
        let tid = to_pid(tid)?.as_raw_nonzero().get();
        trace(libc::PTRACE_SEIZE, tid, 0)?;
        // From here on, dropping `stopped` lets it go.
        let stopped = Stopped { tid, _thread: PhantomData };
        trace(libc::PTRACE_INTERRUPT, tid, 0)?;
        loop {
            let status = wait(tid)?;
            if !libc::WIFSTOPPED(status) {
                return Err(Error::Gone { action: "stop", path: thread_path(tid) });
            }
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                return Ok(stopped);
            }
            // It stopped to deliver a signal: let it handle that first.
            trace(libc::PTRACE_CONT, tid, libc::WSTOPSIG(status))?;
        }
    }
}

/// Waits until the state of a traced thread changes, and returns the new state.
fn wait(tid: i32) -> Result<i32> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call. __WALL also waits for threads made by clone(2).
    while unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(Error::task("wait for", thread_path(tid), error, WAY_OUT));
        }
    }
    Ok(status)
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails only if the thread has ended.
        let _ = trace(libc::PTRACE_DETACH, self.tid, 0);
    }
}

fn trace(request: libc::c_uint, tid: i32, signal: i32) -> Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of these requests touches memory of this process.
    if unsafe { libc::ptrace(request as _, tid, none, signal as usize) } < 0 {
        return Err(Error::task("stop", thread_path(tid), io::Error::last_os_error(), WAY_OUT));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn state(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().chars().next().unwrap()
    }

    fn busy() -> Child {
        let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        while state(busy.id()) != 'R' {
            std::thread::yield_now();
        }
        busy
    }

    #[test]
    fn a_stopped_thread_goes_on_when_it_is_let_go_and_when_its_owner_ends() {
        let mut busy = busy();
        let tid = busy.id() as i32;
        let stopped = Stopped::stop(tid).unwrap();
        assert_eq!(state(busy.id()), 't');
        assert!(Stopped::stop(tid).is_err_and(|e| e.is_not_permitted()), "stopped twice");
        drop(stopped);
        assert_ne!(state(busy.id()), 't');
        // A pending signal is delivered.
        for _ in 0..20 {
            // SAFETY: the child is alive.
            unsafe { libc::kill(tid, libc::SIGCONT) };
            drop(Stopped::stop(tid).unwrap());
        }
        std::thread::spawn(move || std::mem::forget(Stopped::stop(tid).unwrap())).join().unwrap();
        while state(busy.id()) == 't' {
            std::thread::yield_now();
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(Stopped::stop(tid).is_err_and(|e| e.is_gone()));
        assert!(Stopped::stop(0).is_err());
    }
}
