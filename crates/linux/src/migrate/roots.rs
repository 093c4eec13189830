//! Where the daemon reads the system: `/proc` and `/sys`, handed in so that tests can use a tree of their own.

use crate::proc::{ProcRoot, SysCpus};

/// Both roots.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc: ProcRoot,
    /// `/sys`.
    pub sys: SysCpus,
}
