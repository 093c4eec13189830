//! A helper process that cleans up after the main process, however that ends, even by SIGKILL.
//!
//! The program starts itself a second time as the *warden*, in a session of its own. It writes what must not outlive it
//! to the warden's standard input, one line each: processes, cgroups, directories, tasks' affinity masks, and quotas of cgroups that others have made. When the
//! main process ends, for whatever reason, the kernel closes the pipe; the warden then removes what is still
//! registered, and ends.
//!
//! ```text
//! +process PID STARTTICKS     -process PID STARTTICKS
//! +cgroup PATH                -cgroup PATH
//! +dir PATH                   -dir PATH
//! +masks PATH                 -masks PATH
//! +quota QUOTA PERIOD PATH    -quota QUOTA PERIOD PATH
//! ```
//!
//! Invariants:
//! - a process is killed only if its start time is the registered one;
//! - a cgroup is removed only if it or its parent is named `reprieve-*`; its tasks are moved, never killed;
//! - a directory is removed only if it is named `reprieve-*`;
//! - a state file of masks may have any absolute path: it is opened as `--restore` opens it, and any other file is left
//!   alone;
//! - a quota is written only to an existing file named `cpu.cfs_quota_us` or `cpu.max` that lies in a cgroup file system;
//! - a truncated line is ignored, because a truncated path could name something else.
//!
//! No other child may inherit the pipe; the standard library opens it close-on-exec. A process that was started but not
//! yet registered when the main process is killed stays, so use PR_SET_PDEATHSIG too.

mod clean;
mod client;
mod line;
mod server;

pub use clean::put_back;
pub(crate) use clean::put_back_if_lowered;
pub use client::Warden;
pub use line::Guarded;
pub(crate) use line::Line;
pub(crate) use server::listen;
pub use server::run;

/// The most objects guarded at a time.
pub const MAX_GUARDED: usize = 4096;
