//! What this machine, kernel and C library offer, probed once, and how the crate works without what is missing.
//!
//! | missing | consequence |
//! |---|---|
//! | rseq, membarrier's RSEQ command, the stub page, x86-64 Linux | `read` and `acquire` run as epoch sections |
//! | membarrier altogether | the same, and readers execute a full fence at the start of each section |

use crate::fence;
use crate::fork;
use crate::platform::{keep_loaded, membarrier};
use crate::section::{self, Obstacle};
use std::fmt;
use std::sync::OnceLock;

/// What is used on this machine. `Display` shows it in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether `read` and `acquire` are restartable and, if not, why not. Copies of small plain values
    /// ([`crate::RcuCell::get`]) are restartable even where only the stub page is missing, or where the thread has a
    /// shadow stack.
    pub restartable: Result<(), Obstacle>,
    /// Whether writers execute the readers' fences for them, by membarrier. If not, readers execute full fences.
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

/// What this process uses, probed at the first call.
///
/// The environment variable `REPRIEVE_RCU` switches things off: `no-rseq` switches off restartable sections (for
/// debuggers that step through the program, and for valgrind), and `fence` or `off` also membarrier. `rseq` switches
/// restartable sections on where glibc was told not to register threads for rseq (`glibc.pthread.rseq=0`): this
/// library then registers them, unless other code has. Other values change nothing.
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

/// Probes at the first call; later calls are a load. Must come before the first section of the process.
pub(crate) fn probe() -> Capabilities {
    *FOUND.get_or_init(|| {
        // First, before anything keeps an address of this library's code.
        keep_loaded();
        fork::install();
        let wish = std::env::var("REPRIEVE_RCU").unwrap_or_default();
        let asymmetric = match wish.as_str() {
            "off" | "fence" => false,
            _ => membarrier::register(),
        };
        let restartable = match wish.as_str() {
            "off" | "fence" | "no-rseq" => Err(Obstacle::SwitchedOff),
            _ => section::prepare(wish == "rseq"),
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
