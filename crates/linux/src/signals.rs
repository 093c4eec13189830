//! An orderly end: each signal that would end the process silently raises a token, which loops check or poll.
//!
//! Invariants: once raised, the token stays raised, and its file descriptor stays readable. Nobody reads from the
//! descriptor, so any number of poll(2) loops wake up.
//!
//! A second SIGINT, SIGTERM or SIGQUIT ends the process at once (the default action): the user insists, and the
//! [warden](crate::warden) cleans up. A *patient* token disables this. A second SIGHUP never does it, because a closing
//! terminal may send several. Two kinds of signals are left alone: those of a crash (SIGSEGV, SIGABRT and the like),
//! after which the process's state cannot be trusted; and SIGPIPE, which Rust's start-up code ignores, so that a write
//! to a closed pipe fails instead. Source: signal(7), the signal-hook crate.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGRTMAX, SIGRTMIN, SIGSTKFLT, SIGTERM,
    SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use rustix::pipe::PipeFlags;

use crate::{Error, Result};

const WAY_OUT: &str = "raise the limit of open files (ulimit -n)";

/// Signals that end the process at once when they come a second time.
const HARD: [i32; 3] = [SIGINT, SIGTERM, SIGQUIT];

/// The signals that end a process by default, can be caught, and do not mean a crash.
pub(crate) fn orderly() -> impl Iterator<Item = i32> {
    let named = [
        SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGSTKFLT, SIGXCPU, SIGXFSZ, SIGVTALRM,
        SIGPROF, SIGIO, SIGPWR,
    ];
    named.into_iter().chain(SIGRTMIN()..=SIGRTMAX())
}

/// Shows whether the user wants the process to end. Clones share one state.
#[derive(Clone, Debug)]
pub struct Interrupt {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    raised: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    readable: OwnedFd,
    wake: OwnedFd,
}

impl Interrupt {
    /// Installs the handlers. Call it once per process, before starting threads and children.
    ///
    /// The handlers stay for the life of the process, even after the token is dropped.
    ///
    /// # Errors
    /// [`Error::Io`] if no pipe can be made or no handler installed.
    pub fn install() -> Result<Interrupt> {
        Interrupt::installed(&HARD)
    }

    /// As [`install`](Interrupt::install), but a second signal does not end the process: for a process that must first
    /// undo its changes, which takes a bounded time.
    pub fn install_patient() -> Result<Interrupt> {
        Interrupt::installed(&[])
    }

    /// Installs the handlers; a second signal of those in `hard` ends the process.
    fn installed(hard: &[i32]) -> Result<Interrupt> {
        let interrupt = Interrupt::manual()?;
        for signal in orderly() {
            interrupt
                .watch(signal, hard.contains(&signal))
                .map_err(|e| Error::io("handle signals through", "sigaction", e, WAY_OUT))?;
        }
        Ok(interrupt)
    }

    /// A token that only [`raise`](Interrupt::raise) raises, and no signal: for tests and embedding.
    ///
    /// # Errors
    /// [`Error::Io`] if no pipe can be made.
    pub fn manual() -> Result<Interrupt> {
        let (readable, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|e| Error::io("make", "a pipe", e, WAY_OUT))?;
        let state = State { raised: Arc::default(), signal: Arc::default(), readable, wake };
        Ok(Interrupt { state: Arc::new(state) })
    }

    /// Registers the actions of one signal. They run in the order of registration, so the first one sees whether an
    /// earlier signal has raised the token.
    fn watch(&self, signal: i32, hard: bool) -> std::io::Result<()> {
        if hard {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&self.state.raised))?;
        }
        let token = self.clone();
        let action = move || {
            token.state.signal.store(signal as usize, Ordering::SeqCst);
            token.raise();
        };
        // One action for all signals, so that they share one descriptor.
        // SAFETY: the action is async-signal-safe: two atomic stores and a non-blocking write(2). signal-hook preserves
        // errno, and never drops the action, so no handler frees memory.
        unsafe { signal_hook::low_level::register(signal, action) }.map(drop)
    }

    /// Whether the process should end.
    pub fn is_raised(&self) -> bool {
        // SeqCst as in signal-hook's handler; this is not a hot path.
        self.state.raised.load(Ordering::SeqCst)
    }

    /// The number of the last signal, if any. A shell expects exit code 128 + number.
    pub fn signal(&self) -> Option<i32> {
        match self.state.signal.load(Ordering::SeqCst) {
            0 => None,
            number => Some(number as i32),
        }
    }

    /// Raises the token without a signal.
    pub fn raise(&self) {
        self.state.raised.store(true, Ordering::SeqCst);
        // Fails only if the pipe is full, and then it is readable anyway.
        let _ = rustix::io::write(&self.state.wake, &[0]);
    }
}

/// Readable from the moment the token is raised. Poll it for input; do not read from it.
impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.state.readable.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(interrupt: &Interrupt) -> bool {
        let mut fds = [PollFd::new(interrupt, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_raised_token_stays_raised_and_readable_for_all_clones() {
        let interrupt = Interrupt::manual().unwrap();
        let clone = interrupt.clone();
        assert!(!clone.is_raised() && !is_readable(&clone));
        interrupt.raise();
        assert!(clone.is_raised() && is_readable(&clone) && is_readable(&clone));
        assert_eq!(clone.signal(), None);
    }

    #[test]
    fn raising_more_often_than_the_pipe_holds_does_not_block() {
        let interrupt = Interrupt::manual().unwrap();
        (0..100_000).for_each(|_| interrupt.raise());
        assert!(is_readable(&interrupt));
    }

    #[test]
    fn every_signal_on_the_list_raises_the_installed_token() {
        let interrupt = Interrupt::install_patient().unwrap();
        for signal in orderly() {
            signal_hook::low_level::raise(signal).unwrap();
            assert!(interrupt.is_raised() && is_readable(&interrupt));
            assert_eq!(interrupt.signal(), Some(signal));
        }
    }

    /// Checks against the kernel's list (signal(7)) that no signal is missing.
    #[test]
    fn the_other_signals_are_harmless_crashes_or_cannot_be_caught() {
        use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTRAP};
        use libc::{SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
        let crashes = [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS];
        let harmless = [SIGCHLD, SIGCONT, SIGURG, SIGWINCH];
        let stops = [SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU];
        let others = [SIGKILL, SIGPIPE].into_iter().chain(crashes).chain(harmless).chain(stops);
        let known: Vec<i32> = others.chain(orderly()).collect();
        let unknown: Vec<i32> = (1..32).filter(|signal| !known.contains(signal)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
