//! The reasons why restartable sections may be unavailable.

use std::fmt;

/// Why restartable sections are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Switched off by the environment variable `REPRIEVE_RCU`.
    SwitchedOff,
    /// Only x86-64 Linux has an entry for restartable sections.
    Architecture,
    /// Threads cannot be registered for rseq, because of Linux before 4.18, valgrind, gVisor, or other code that
    /// registers them itself; or glibc was told not to, by the tunable `glibc.pthread.rseq=0` (see
    /// [`capabilities`](crate::capabilities())).
    NoRseq,
    /// The kernel refuses membarrier's RSEQ command, because of Linux before 5.10, a seccomp filter, or gVisor.
    NoMembarrier,
    /// The kernel refuses membarrier, which it allowed before, because a seccomp filter was installed later. Nothing
    /// can be freed any more. Let the filter allow it, or set `REPRIEVE_RCU=fence`.
    MembarrierRefused,
    /// No page below the program's text could be mapped for the abort stub.
    NoStubPage,
    /// The thread has a shadow stack, which an abort cannot rewind.
    ShadowStack,
    /// Foreign code has changed the thread's rseq field within sections too often.
    ForeignRseq,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SwitchedOff => "switched off by REPRIEVE_RCU",
            Self::Architecture => "not x86-64 Linux",
            Self::NoRseq => "rseq is not registered",
            Self::NoMembarrier => "the kernel refuses membarrier's RSEQ command",
            Self::MembarrierRefused => "membarrier was allowed and is now refused: nothing can be freed",
            Self::NoStubPage => "no page below the program's text could be mapped",
            Self::ShadowStack => "the process has a shadow stack",
            Self::ForeignRseq => "foreign code uses rseq within read sections",
        })
    }
}
