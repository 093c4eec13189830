//! A CPU bandwidth quota on single threads, through the cpu controller of cgroup v1 or v2.
//!
//! ```text
//! <base>/reprieve-<name>/            a QuotaTree; on v2 adopted processes move here
//!                       <label>/     a quota group; single threads move here
//! ```
//!
//! Invariants: only directories named `reprieve-*` are made or removed; a released thread goes back to the cgroup it
//! came from; no directory outlives its [`QuotaTree`]. If the process is killed, the [warden](crate::warden) removes
//! [`QuotaTree::directory`], and [`sweep_stale`] removes what earlier runs left.
//!
//! On v2 the base is the nearest ancestor of this process's cgroup that already enables the cpu controller for its
//! children, or else the root. So no existing cgroup is reconfigured, and processes can always go back. A thread can
//! join a group only after its process was [adopted](QuotaTree::adopt_process), since all threads of a process must
//! live in one threaded subtree.
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
mod throttled;
mod tree;

pub use detect::{Cgroups, Version};
pub use quota::{MAX_PERIOD_US, MIN_PERIOD_US, MIN_QUOTA_US, Quota};
pub use stale::{sweep_stale, unique_name};
pub use tree::{GroupId, MAX_GROUPS, MAX_NAME_BYTES, QuotaTree};

pub(crate) use fs::RealFs;
pub(crate) use remove::remove_tree;
pub(crate) use throttled::Throttled;
pub use throttled::{Limit, limits_of};

/// The prefix of all directories made here. No other directory is ever removed.
pub const DIRECTORY_PREFIX: &str = "reprieve-";
