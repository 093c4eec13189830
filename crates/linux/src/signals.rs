//! A polite end: every signal that would end the process without a word raises a token that loops look at or poll on.
//!
//! Invariants: the token never falls once raised; its file descriptor is readable from then on, and nobody
//! reads from it, so that any number of poll(2) loops wake up. A second SIGINT, SIGTERM or SIGQUIT ends the process
//! at once (default action): the user means it, and the [warden](crate::warden) cleans up; a patient token's does
//! not. Nor does a second SIGHUP: a closing terminal may send several. Left alone are the signals of a crash (SIGSEGV,
//! SIGABRT and their like), after which nothing of the process is to be trusted, and SIGPIPE, which Rust's start-up code
//! ignores: a write to a reader that is gone fails instead. Source: signal(7), the signal-hook crate.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::pipe::PipeFlags;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};

use crate::error::{Error, Result};

const WAY_OUT: &str = "raise the limit of open files (ulimit -n)";

/// Signals that mean the user is out of patience when they come a second time.
const HARD: [i32; 3] = [SIGINT, SIGTERM, SIGQUIT];

/// What ends a process by default, can be caught, and is no crash.
pub(crate) fn polite() -> impl Iterator<Item = i32> {
    let named = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGTERM,
        libc::SIGSTKFLT,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
    ];
    named.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Says whether the user wants the process to end. Clones share one state.
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
    /// Installs the handlers. Once per process, early, before threads and children are started.
    ///
    /// The handlers stay for the life of the process, also after the token is dropped.
    ///
    /// # Errors
    /// [`Error::Io`] if no pipe can be made or no handler installed.
    pub fn install() -> Result<Interrupt> {
        Interrupt::installed(&HARD)
    }

    /// As [`install`](Interrupt::install), but no further signal ends the process either: for one that has to put things back
    /// before it ends, which takes a bounded time.
    ///
    /// # Errors
    /// As [`install`](Interrupt::install).
    pub fn install_patient() -> Result<Interrupt> {
        Interrupt::installed(&[])
    }

    /// With handlers; a second one of the `hard` signals ends the process.
    fn installed(hard: &[i32]) -> Result<Interrupt> {
        let interrupt = Interrupt::manual()?;
        for signal in polite() {
            interrupt
                .watch(signal, hard.contains(&signal))
                .map_err(|e| Error::io("handle signals through", "sigaction", e, WAY_OUT))?;
        }
        Ok(interrupt)
    }

    /// A token that no signal raises, only [`raise`](Interrupt::raise): for tests and embedding.
    ///
    /// # Errors
    /// [`Error::Io`] if no pipe can be made.
    pub fn manual() -> Result<Interrupt> {
        let (readable, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|e| Error::io("make", "a pipe", e, WAY_OUT))?;
        let state = State { raised: Arc::default(), signal: Arc::default(), readable, wake };
        Ok(Interrupt { state: Arc::new(state) })
    }

    /// Actions of one signal run in the order of registration, so the first one still sees the token as
    /// the signals before have left it.
    fn watch(&self, signal: i32, hard: bool) -> std::io::Result<()> {
        if hard {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&self.state.raised))?;
        }
        let token = self.clone();
        let action = move || {
            token.state.signal.store(signal as usize, Ordering::SeqCst);
            token.raise();
        };
        // One action, and no descriptor of its own for each of so many signals.
        // SAFETY: the action is async-signal-safe: two atomic stores and a write(2) that does not block. signal-hook keeps
        // errno, and never drops the action, so nothing is freed within a handler.
        unsafe { signal_hook::low_level::register(signal, action) }.map(drop)
    }

    /// Whether the process should end.
    pub fn is_raised(&self) -> bool {
        // SeqCst as in signal-hook's handler; this is no hot path.
        self.state.raised.load(Ordering::SeqCst)
    }

    /// The number of the last signal, if one came. A shell expects exit code 128 + number.
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
    fn whatever_ends_a_process_politely_raises_the_installed_token() {
        let interrupt = Interrupt::install_patient().unwrap();
        for signal in polite() {
            signal_hook::low_level::raise(signal).unwrap();
            assert!(interrupt.is_raised() && is_readable(&interrupt));
            assert_eq!(interrupt.signal(), Some(signal));
        }
    }

    /// By the kernel's own list (signal(7)): nothing that ends a process is forgotten.
    #[test]
    fn what_is_left_ends_no_process_is_a_crash_or_cannot_be_caught() {
        let crashes = [
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGSEGV,
            libc::SIGSYS,
        ];
        let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let known: Vec<i32> = [libc::SIGKILL, libc::SIGPIPE]
            .into_iter()
            .chain(crashes)
            .chain(harmless)
            .chain(stops)
            .chain(polite())
            .collect();
        let unknown: Vec<i32> = (1..32).filter(|signal| !known.contains(signal)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
