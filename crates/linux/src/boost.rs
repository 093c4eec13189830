//! Lets descheduled vCPUs of a running VM run for a moment, a *visit*, so that its RCU grace periods can end. The
//! control loop reads the guest's RCU state and the host's scheduler, asks [`reprieve_policy::boost`] what to do, and
//! writes the quotas of the vCPUs' cgroups.
//!
//! ```text
//! GuestRcu, schedstat, cpu.stat --> Look --> Booster --> Order --> Ledger --> the quota in the group's file
//! ```
//!
//! **What the caller provides:** the guest's RCU state, as a [`GuestRcu`]; the vCPUs' threads; and the cgroups whose
//! quota limits them ([`Limited`]). A vCPU without a quota is watched, but the loop cannot make it run sooner.
//!
//! **How a visit is made.** Three ways were measured on Linux 6.18 with cgroup v1. Writing a quota of 1 ms into the
//! thread's own group takes 20 us and starts the thread within 65 us, and the kernel itself ends the visit. Moving the
//! thread out of its group takes 6 to 15 ms, and nothing limits how long it then runs. A burst (`cpu.max.burst`) does
//! not end a throttle. So a visit is a write of a quota of at least 1 ms, the least that the kernel accepts.
//! [`Ledger`](reprieve_policy::boost::Ledger) keeps the accounts and says how the time is paid back.
//!
//! The kernel notices that a quota is used up only when it accounts run time: at its tick, up to 4 ms late, or when
//! another thread preempts the vCPU. So the loop's thread runs on the visited vCPU's pCPU during a visit, and each of
//! its looks preempts the vCPU.
//!
//! **Invariants.** A group is lent time only if all of its threads are the VM's, nobody else lends to it, and its quota is
//! one that visits can be paid back from. Quotas are put back when the loop ends, however it ends. If the process is killed, the
//! [warden](crate::warden) does it, if the caller has it guard each group ([`Group::guarded`]) before the loop starts; a
//! group that is removed then, as a lab's is, needs no guard. While one vCPU of a group is visited, it runs for no longer than
//! the policy's cap, or 1 ms, plus the time between two looks. If the group has other busy vCPUs, the write lets these run, too,
//! each for up to a tick of the host. All of it is paid back. A vCPU thread's scheduling class is never changed.

mod group;
mod limits;
mod lock;
mod owner;
mod run;
mod stand;
mod vcpus;

pub use group::{Group, Limited};
pub use limits::limits;
pub use lock::Lock;
pub use reprieve_policy::boost::Aim;
pub use run::{Boosting, Given, Plan};

/// A guest's RCU state at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RcuLook {
    /// The number of the open grace period; none if none is open. It must differ from one grace period to the next.
    pub open: Option<u64>,
    /// The vCPUs that the grace period waits for: a bit for each vCPU number.
    pub holdouts: u64,
    /// The guest's count of timer ticks (`jiffies`).
    pub ticks: u64,
    /// The vCPUs whose task cannot be preempted: a bit for each vCPU number. Such a task may hold a spinlock for which a vCPU
    /// spins that the grace period waits for.
    pub not_preemptible: u64,
    /// The vCPU on which the guest has put the grace-period kthread, if the kthread runs or is runnable.
    pub kthread_on: Option<usize>,
}

/// Reads a guest's RCU state. Called at every look, so it should take a few us.
pub trait GuestRcu {
    /// The state now.
    ///
    /// # Errors
    /// The guest can no longer be read, because it has ended or another kernel has replaced it. The loop then puts the
    /// quotas back and ends.
    fn look(&mut self) -> crate::Result<RcuLook>;
}

/// Settings for real hosts, where visits cannot be shorter than 1 ms. The pause between two visits spreads them over
/// the time that a vCPU is throttled. With shorter pauses the vCPU reaches its debt limit early in each period, and is
/// then off for the rest of it. *Chosen in view of results*, on simulated guests of 2 vCPUs with a quota of 20 ms in
/// 100 ms, with another seed (7) than is reported.
pub const SETTINGS: reprieve_policy::boost::Settings = reprieve_policy::boost::Settings {
    threshold_ns: 5_000_000,
    cap_ns: 1_000_000,
    cool_down_ns: 8_000_000,
    debt_ns: 8_000_000,
    share_permille: 200,
    before_tick: true,
};
/// Time between two looks that goes with [`SETTINGS`], ns.
pub const LOOK_NS: u64 = 250_000;
