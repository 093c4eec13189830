//! The grounds of real guests under QEMU: `vm`, Linux on this host's scheduler, and `xen`, real Xen in deterministic
//! emulation.
//!
//! | module | does |
//! |---|---|
//! | [`image`] | kernel, initial file system and guest programs, from the distribution's packages |
//! | [`qemu`] | one QEMU process, from its start to its certain end |
//! | [`link`] | the protocol with the runner inside a guest |
//! | [`introspect`] | a guest's state, read from its memory |
//! | [`attach`] | finds RCU's state in guests of others |
//! | [`outside`] | who keeps the vCPUs of any guest off |
//! | [`watch`] | samples a running guest thousands of times a second |
//! | [`stimulus`] | puts a condition into force: pinning, quotas, busy processes, bursts, pauses |
//! | [`boosting`] | boosts of vCPUs that a grace period waits for |
//! | [`bursts`] | real-time threads that take pCPUs from the guest |
//! | [`pauses`] | vCPU threads that are stopped for a while |
//! | [`cpu_account`] | CPU time that vCPUs and others got in a window |
//! | [`parameters`] | whether a guest's kernel took the words of its command line |
//! | [`lab`] | one run: boots a guest, measures it, ends it |
//! | [`ground`] | works through a scenario's plan |
//! | [`program`] | a run whose workload is a program of the host |
//! | [`fio`] | runs of fio, with the daemon that moves its jobs |
//! | [`analysis`] | turns a run's raw results into its observation |
//! | [`xen`] | the ground `xen`, with the same tools for images and machines |

pub mod analysis;
pub mod attach;
pub mod boosting;
pub mod bursts;
pub mod cpu_account;
pub mod error;
pub mod fio;
pub mod ground;
pub mod host;
pub mod image;
pub mod introspect;
pub mod lab;
pub mod link;
pub mod outside;
pub mod parameters;
pub mod pauses;
pub mod program;
pub mod qemu;
pub mod stimulus;
mod unprivileged_user;
pub mod watch;
pub mod xen;

pub use error::{Result, VmError};
pub use ground::VmGround;
pub use host::{HogCommand, Host};
pub use xen::XenGround;

/// Is told of each step that takes a while.
pub type Step<'a> = dyn FnMut(&str) + 'a;
