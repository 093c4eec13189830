//! Classic, non-preemptible Tree RCU as Linux 6.1 has it (`CONFIG_PREEMPT_VOLUNTARY`).
//!
//! A pure state machine inside a simulated guest: no clock, no scheduler, no memory of its own. The guest calls it at
//! the moments at which a kernel would, with the time, and carries out what it finds in [`Effects`]. All calls for a
//! CPU are made as that CPU, so they are made only while it runs; the exception is [`Rcu::set_descheduled`].
//!
//! | the guest | calls |
//! |---|---|
//! | retires an object | [`Rcu::call`], [`Rcu::entrain`] for a barrier |
//! | takes the scheduler's tick | [`Rcu::tick`] |
//! | switches tasks, or reaches a voluntary preemption point | [`Rcu::context_switch`], [`Rcu::voluntary`] |
//! | goes idle, and leaves that for a task or an interrupt | [`Rcu::idle_enter`], [`Rcu::idle_exit`] |
//! | runs the RCU softirq | [`Rcu::core`], then [`Rcu::begin_batch`], [`Rcu::next_callback`], [`Rcu::end_batch`] |
//! | runs the grace-period kthread | [`Rcu::kthread`] until it sleeps |
//! | waits for an expedited grace period | [`Rcu::start_expedited`], [`Rcu::expedited_ipi`] |
//! | takes the interrupt of a grace period that asks (a remedy) | [`Rcu::asked_ipi`], [`Rcu::report_asked`] |
//! | asks whether a grace period has passed | [`Rcu::cookie`], [`Rcu::ask_for`], [`Rcu::has_passed`] |
//!
//! Invariants, which the tests check on random schedules: a callback is invoked only after every CPU passed a quiescent
//! state since it was queued; each callback is invoked once, in order on its CPU; a grace period that waits for a CPU
//! does not end before that CPU, or the scan that found it idle, reported a quiescent state.
//!
//! Left out: CPU hotplug, nohz_full, priority boosting, the text of stall warnings (they are counted), and
//! lock contention: a walk over the tree happens at one instant, its cost is the guest's to charge.
//!
//! Source: the algorithm of kernel/rcu/tree.c, tree_plugin.h, tree_exp.h, tree_stall.h and rcu_segcblist.c of Linux 6.1,
//! as described in Documentation/RCU/Design; the kernel's names are given where they help to find it there.

mod ask;
mod batch;
mod call;
mod callbacks;
mod core_work;
mod cpu;
mod effects;
mod expedited;
mod grace_periods;
mod idle;
pub mod kfree;
mod kthread;
mod offload;
mod params;
mod poll;
mod requests;
mod scan;
mod sequence;
mod state;
mod tick;
mod tree;

#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use callbacks::Callback;
pub use core_work::CoreWork;
pub use effects::{Context, Effects};
pub use kthread::{Kthread, Step, Wakeup};
pub use params::{Ask, Params};
pub use poll::Cookie;
pub use state::Rcu;
