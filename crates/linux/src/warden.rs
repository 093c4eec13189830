//! Nothing is left behind, whatever way the main process ends, SIGKILL included.
//!
//! The program starts itself a second time as a warden, in a session of its own, and writes to the
//! warden's standard input, a line each, what must not outlive it: processes, cgroups, directories, and bindings of tasks. The
//! kernel closes that pipe when the main process is gone for whatever reason; the warden then removes what
//! is still registered, and ends.
//!
//! ```text
//! +process PID STARTTICKS     -process PID STARTTICKS
//! +cgroup PATH                -cgroup PATH
//! +dir PATH                   -dir PATH
//! +masks PATH                 -masks PATH
//! ```
//!
//! Invariants: a process is killed only if its start time is the registered one; a cgroup is removed only
//! if it, or its parent, is named `reprieve-*`, and its tasks are moved, never killed; a directory only if
//! it is named `reprieve-*`; of a state file of masks any absolute path is taken, since it is opened as `--restore` opens it, and
//! what is no state file is left alone. A line that is cut short is ignored: a path cut short could be another one.
//! The pipe's end must not leak into other children; the standard library opens it close-on-exec. What is
//! started and not yet registered when the main process is killed stays: use PR_SET_PDEATHSIG too.

mod clean;
mod client;
mod line;
mod server;

pub use client::Warden;
pub use line::Guarded;
pub use server::run;

/// The most things guarded at a time.
pub const MAX_GUARDED: usize = 4096;
