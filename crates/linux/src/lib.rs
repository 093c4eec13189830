//! Probes that read a live Linux host, and actuators that change one.
//!
//! | module | reads or does |
//! |---|---|
//! | [`observe`] | sees what a VM frees after grace periods, from inside |
//! | [`proc`] | reads run time, run delay, CPU time, memory and identity from a given `/proc` |
//! | [`boost`] | lets descheduled vCPUs that a grace period waits for run for a moment |
//! | [`cgroup`] | sets a CPU bandwidth quota on single threads, with cgroup v1 or v2 |
//! | [`switches`] | records through perf when threads ran, were preempted, or were blocked |
//! | [`occupants`] | records through perf which task each CPU ran |
//! | [`clock`] | the host's monotonic clock |
//! | [`threads`] | sets affinity, policy, nice value and timer slack of threads |
//! | [`child`] | starts child programs that die with their parent |
//! | [`hogs`] | starts child processes that burn one CPU each |
//! | [`metrics`] | a file for Prometheus |
//! | [`notify`] | signals a process, or runs a program for a bounded time |
//! | [`migrate`] | keeps I/O tasks on vCPUs that are on, from inside a virtual machine |
//! | [`warden`] | a helper process that cleans up however the main process ends |
//! | [`signals`] | turns SIGINT, SIGTERM, SIGHUP and the like into an orderly end |
//! | [`error`] | the crate's error type |
#![cfg(target_os = "linux")]

pub mod boost;
pub mod cgroup;
pub mod child;
pub mod clock;
pub mod error;
pub mod hogs;
pub mod metrics;
pub mod migrate;
pub mod notify;
pub mod observe;
pub mod occupants;
mod perf;
pub mod proc;
pub mod signals;
pub mod switches;
pub mod threads;
pub mod warden;

pub use error::{Error, Result};
