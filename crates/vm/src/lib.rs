//! The grounds of real guests under QEMU: `vm`, Linux on this host's scheduler, and `xen`, real Xen in deterministic
//! emulation.
//!
//! | module | does |
//! |---|---|
//! | [`image`] | kernel, initial file system and guest programs, from the distribution's packages |
//! | [`qemu`] | one QEMU process: started, talked to, surely ended |
//! | [`link`] | the conversation with the runner inside a guest |
//! | [`introspect`] | a guest's state, read from its memory |
//! | [`watch`] | looks at a running guest thousands of times a second |
//! | [`stimulus`] | pinning, quotas, neighbours, hogs |
//! | [`bursts`] | real-time threads that take pCPUs away |
//! | [`lab`] | one run |
//! | [`ground`] | a scenario's plan |
//! | [`program`] | a run whose workload is a program of the host's |
//! | [`fio`] | runs of fio, beside the daemon that moves its jobs |
//! | [`analysis`] | from what a run left to its observation |
//! | [`xen`] | the ground `xen`, on the same images and machines |

pub mod analysis;
pub mod bursts;
pub mod clock;
pub mod cpu_account;
pub mod error;
pub mod fio;
pub mod ground;
pub mod host;
pub mod image;
pub mod introspect;
pub mod lab;
pub mod link;
pub mod pauses;
pub mod program;
pub mod qemu;
pub mod stimulus;
mod unprivileged_user;
pub mod watch;
pub mod xen;

pub use error::VmError;
pub use ground::Ground;
pub use host::{HogCommand, Host};
pub use xen::XenGround;
