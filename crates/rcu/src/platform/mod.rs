//! What this machine, kernel and C library offer, found out once, and what is done where something is
//! missing.
//!
//! | missing | consequence |
//! |---|---|
//! | rseq, membarrier's RSEQ command, the stub page, x86-64 Linux | `read` and `acquire` run as pinned epochs |
//! | membarrier altogether | as above, and readers execute a full fence at the start of a section |
//!
//! The environment variable `REPRIEVE_RCU` switches things off, for debuggers that step out of line, for
//! valgrind and for tests: `no-rseq` leaves membarrier on; `fence` and `off` use neither. `rseq` registers threads for rseq
//! even where the C library was told not to.

// The one switch between systems: both halves have the same functions, and no other file asks which system it is.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(reprieve_fallback)))]
#[path = "linux/mod.rs"]
mod system;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(reprieve_fallback))))]
#[path = "other/mod.rs"]
mod system;

#[cfg(all(unix, not(any(shuttle, reprieve_fallback))))]
#[path = "thread_end/keyed.rs"]
pub(crate) mod thread_end;
#[cfg(not(all(unix, not(any(shuttle, reprieve_fallback)))))]
#[path = "thread_end/local.rs"]
pub(crate) mod thread_end;

pub(crate) use system::*;

use crate::fence;
use crate::section;
use std::fmt;
use std::sync::OnceLock;

/// Why restartable sections are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Switched off by the environment variable `REPRIEVE_RCU`.
    SwitchedOff,
    /// Only x86-64 Linux has an entry for restartable sections.
    Architecture,
    /// Threads cannot be registered for rseq: Linux before 4.18, valgrind, gVisor, other code that registers them itself; or
    /// glibc was told not to, by the tunable `glibc.pthread.rseq=0` (see [`capabilities`]).
    NoRseq,
    /// The kernel refuses membarrier's RSEQ command: Linux before 5.10, a seccomp filter, gVisor.
    NoMembarrier,
    /// The kernel has allowed membarrier and refuses it now, because of a seccomp filter that was installed later:
    /// nothing can be freed any more. Let the filter allow it, or set `REPRIEVE_RCU=fence`.
    MembarrierRefused,
    /// No page below the program's text could be mapped for the abort stub.
    NoStubPage,
    /// The thread has a shadow stack, which an abort cannot rewind.
    ShadowStack,
    /// Foreign code changed the thread's rseq field within sections too often.
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

/// What is used on this machine. `Display` says it in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether `read` and `acquire` are restartable; if not, why not. Copies of small plain values ([`crate::RcuCell::get`])
    /// also are where only the stub page is missing, or where the thread has a shadow stack.
    pub restartable: Result<(), Obstacle>,
    /// Whether writers execute the readers' fences for them, by membarrier; if not, readers execute full
    /// fences.
    pub asymmetric: bool,
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.restartable {
            Ok(()) => f.write_str("restartable sections: yes")?,
            Err(why) => write!(f, "restartable sections: no ({why}), pinned epochs instead")?,
        }
        f.write_str(if self.asymmetric {
            "; fences: asymmetric, by membarrier"
        } else {
            "; fences: in readers (no membarrier)"
        })
    }
}

/// What this process uses, found out at the first call.
///
/// The environment variable `REPRIEVE_RCU` switches things off: `no-rseq`, restartable sections (for debuggers that step
/// through the program); `fence`, membarrier too. `rseq` switches restartable sections on where glibc was told not to register
/// threads for rseq (`glibc.pthread.rseq=0`): by this library, unless other code has registered them. Other values change
/// nothing.
pub fn capabilities() -> Capabilities {
    let found = probe();
    let obstacle = if fence::is_refused() {
        Err(Obstacle::MembarrierRefused)
    } else if section::disabled_by_foreign_code() {
        Err(Obstacle::ForeignRseq)
    } else {
        Ok(())
    };
    Capabilities {
        restartable: found.restartable.and(obstacle),
        asymmetric: found.asymmetric && !fence::is_refused(),
    }
}

static FOUND: OnceLock<Capabilities> = OnceLock::new();

/// Probes once; afterwards a load. Must precede the first section of the process.
pub(crate) fn probe() -> Capabilities {
    *FOUND.get_or_init(|| {
        // Before anything keeps an address of our code.
        keep_loaded();
        crate::fork::install();
        let wish = std::env::var("REPRIEVE_RCU").unwrap_or_default();
        let asymmetric = match wish.as_str() {
            "off" | "fence" => false,
            _ => membarrier::register(),
        };
        let restartable = match wish.as_str() {
            "off" | "fence" | "no-rseq" => Err(Obstacle::SwitchedOff),
            _ => prepare_sections(wish == "rseq"),
        };
        Capabilities { restartable, asymmetric }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_says_what_is_used_and_why_not() {
        let full = Capabilities { restartable: Ok(()), asymmetric: true };
        assert_eq!(full.to_string(), "restartable sections: yes; fences: asymmetric, by membarrier");
        let none = Capabilities { restartable: Err(Obstacle::NoRseq), asymmetric: false };
        assert_eq!(
            none.to_string(),
            "restartable sections: no (rseq is not registered), pinned epochs instead; \
             fences: in readers (no membarrier)"
        );
    }
}
