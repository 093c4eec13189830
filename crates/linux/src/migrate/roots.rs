//! The `/proc` and `/sys` that the daemon reads. The caller gives them, so that tests can use their own.

use crate::proc::{ProcRoot, SysCpus};

/// Both roots.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// `/proc`.
    pub proc: ProcRoot,
    /// `/sys`.
    pub sys: SysCpus,
}
