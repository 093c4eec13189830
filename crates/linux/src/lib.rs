//! Probes that read a live Linux host, and actuators that act on one.
//!
//! | module | reads or does |
//! |---|---|
//! | [`proc`] | run time, run delay, CPU time, memory and identity, from a `/proc` that is handed in |
//! | [`cgroup`] | a CPU bandwidth quota on single threads, cgroup v1 and v2 |
//! | [`switches`] | when given threads ran, were preempted, were blocked, through perf |
//! | [`threads`] | affinity, policy, nice and timer slack of threads |
//! | [`child`] | child programs that die with their parent |
//! | [`hogs`] | child processes that burn one CPU each |
//! | [`migrate`] | keeps I/O tasks on vCPUs that are on: beats, decisions by the policy, affinities |
//! | [`warden`] | a helper process that cleans up whatever way the main one ends |
//! | [`signals`] | a polite end on SIGINT, SIGTERM, SIGHUP |
//! | [`error`] | the one error type |
#![cfg(target_os = "linux")]

pub mod cgroup;
pub mod child;
pub mod error;
pub mod hogs;
pub mod migrate;
pub mod proc;
pub mod signals;
pub mod switches;
pub mod threads;
pub mod warden;

pub use error::{Error, Result};
