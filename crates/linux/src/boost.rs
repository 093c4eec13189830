//! Lets descheduled vCPUs of a running VM run for a moment, so that its RCU grace periods can end: the control loop that
//! joins what is read of the guest, what is read of the host's scheduler, and the quotas of the vCPUs' cgroups through
//! [`reprieve_policy::boost`].
//!
//! ```text
//! GuestRcu, schedstat, cpu.stat --> Look --> Booster --> Order --> Ledger --> the quota in the group's file
//! ```
//!
//! **What a caller brings:** the guest's RCU state, as a [`GuestRcu`]; the vCPUs' threads; and the cgroups whose quota
//! limits them ([`Limited`]). A vCPU without a quota is watched, but nothing lets it run sooner.
//!
//! **How a visit is made.** Three ways were measured on Linux 6.18 with cgroup v1. To write a quota of 1 ms into the
//! thread's own group takes 20 us, starts the thread within 65 us, and the kernel itself ends the visit. To move the
//! thread out of its group takes 6 to 15 ms, and nothing bounds its stay there. A burst (`cpu.max.burst`) takes nobody out
//! of a throttle. So visits are writes of a quota, of at least 1 ms, the least that the kernel accepts; the books, and how
//! the time is paid back, are [`Ledger`](reprieve_policy::boost::Ledger)'s.
//!
//! The kernel notices that a quota is used up only when it accounts run time: at its tick, up to 4 ms late, or when
//! something preempts the thread. So this loop's thread, while it looks, runs on the pCPU of the vCPU that is visited.
//!
//! **Invariants.** A group is lent time only if all of its threads are the VM's, nobody else lends to it, and its quota is
//! one that visits can be paid back from. Quotas are put back when the loop ends, however it ends. If the process is killed, the
//! [warden](crate::warden) does it, if the caller has it guard each group ([`Group::guarded`]) before the loop starts; a
//! group that is removed then, as a lab's is, needs no guard. No visit is longer than the policy's cap, or 1 ms, plus the time between two looks. A
//! thread's scheduling class is never changed.

mod group;
mod limits;
mod lock;
mod owner;
mod run;
mod vcpus;

pub use group::{Group, Limited};
pub use limits::limits;
pub use lock::Lock;
pub use reprieve_policy::boost::Aim;
pub use run::{Boosting, Given, Plan};

/// What one look at a guest's RCU says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RcuLook {
    /// The number of the open grace period; none if none is open. It must differ from one grace period to the next.
    pub open: Option<u64>,
    /// vCPUs that it waits for, bit by vCPU number.
    pub holdouts: u64,
    /// The vCPU on which the grace-period kthread runs or waits to run, in the guest's eyes.
    pub kthread_on: Option<usize>,
}

/// Reads a guest's RCU state. Called at every look, so it should take a few us.
pub trait GuestRcu {
    /// The state now.
    ///
    /// # Errors
    /// The guest can no longer be read: it has ended, or is another one. The loop then puts everything back and ends.
    fn look(&mut self) -> crate::Result<RcuLook>;
}

/// Settings for real hosts, where visits cannot be shorter than 1 ms. The pause between two visits spreads what may be
/// borrowed over the time that a vCPU is off: with shorter ones the debt's limit is reached early in each period, and the
/// rest of it is as long as without boosts. *Chosen in view of results*, on simulated guests of 2 vCPUs with a quota of
/// 20 ms in 100 ms, with another seed (7) than is reported.
pub const SETTINGS: reprieve_policy::boost::Settings = reprieve_policy::boost::Settings {
    threshold_ns: 5_000_000,
    cap_ns: 1_000_000,
    cool_down_ns: 8_000_000,
    debt_ns: 8_000_000,
    share_permille: 200,
};
/// Time between two looks for these, ns.
pub const LOOK_NS: u64 = 250_000;
