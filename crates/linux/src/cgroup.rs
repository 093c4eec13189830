//! A CPU bandwidth quota on single threads, through the cpu controller of cgroup v1 or v2.
//!
//! ```text
//! <base>/reprieve-<name>/            a QuotaTree; on v2 adopted processes move here
//!                       <label>/     a quota group; single threads move here
//! ```
//!
//! Invariants: only directories named `reprieve-*` are made or removed; a thread that is released goes
//! back to where it came from; no directory survives its [`QuotaTree`]. Should the process be killed, the
//! [warden](crate::warden) removes [`QuotaTree::paths`], and [`sweep_stale`] what is left of former runs.
//!
//! On v2 the base is the nearest ancestor of this process's cgroup that already hands the cpu controller
//! down, or else the root: so nobody's own cgroup changes, and processes can always go back. Threads can
//! be put into groups only after their process was [adopted](QuotaTree::adopt_process), since all threads
//! of a process must live in one threaded subtree.
//!
//! Source: the kernel's Documentation/scheduler/sched-bwc.rst, admin-guide/cgroup-v1/cgroups.rst and
//! admin-guide/cgroup-v2.rst (threads; no internal process constraint).

mod detect;
#[cfg(test)]
mod fake;
mod fs;
mod quota;
mod remove;
mod stale;
mod stat;
mod tree;

pub use detect::{Cgroups, Version};
pub use quota::{MAX_PERIOD_US, MIN_PERIOD_US, MIN_QUOTA_US, Quota};
pub use stale::{sweep_stale, unique_name};
pub use stat::ThrottleStats;
pub use tree::{GroupId, MAX_GROUPS, MAX_NAME_BYTES, QuotaTree};

pub(crate) use fs::RealFs;
pub(crate) use remove::remove_tree;

/// All directories made here begin so, and nothing that does not is ever removed.
pub const DIRECTORY_PREFIX: &str = "reprieve-";
