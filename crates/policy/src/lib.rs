//! The decisions of I/O-aware placement and of remedies for preempted RCU readers, as pure code: signals in, decisions
//! out.
//!
//! | module | decides |
//! |---|---|
//! | [`beat`] | whether a vCPU was descheduled, whether host or guest caused it, and how much of its slice remains |
//! | [`io`] | which tasks are I/O tasks, and how much of their time is I/O |
//! | [`place`] | which I/O task goes to which vCPU, and when |
//! | [`guard`] | whether moving tasks pays, judged by throughput |
//! | [`boost`] | which descheduled vCPUs should run, so that a grace period can end |
//! | [`gang`] | when the vCPUs of a VM should run together |
//! | [`grant`] | whether a reader that is about to be descheduled gets one more slice |
//! | [`explain`] | what slowed a VM down, and how sure that is |
//! | [`threshold`] | whether a condition that a user has written holds for the last seconds |
//! | [`kernel_log`] | what a kernel's log says about stalls |
//! | [`fingerprint`] | what a host does to a vCPU: a quota with its period, or turns with other threads |
//! | [`steady`] | which vCPUs a guest should use, by their steal |
//! | [`pressure`] | how long a caller waits that defers frees faster than grace periods end |
//!
//! Three more serve these: [`signal`], the type of all input, with a text form for records; [`cpus`], sets of CPUs; and
//! [`window`], quantiles of the latest values.
//!
//! Invariants: nothing here reads a clock, does I/O, uses a random number (a control gets a seed), or allocates after
//! construction; except that [`explain`], [`fingerprint`] and [`kernel_log`] allocate, since they judge what is over. The caller
//! hands in the time, u64 ns on any monotonic clock. The same signals in the same order give the same decisions, so a
//! recorded run can be replayed, and the simulator and the live daemon share this code.
//!
//! ```
//! use reprieve_policy::{beat::Beat, cpus::CpuSet, place::{Placer, Settings}, signal::{Admission, Signal}};
//!
//! let mut placer = Placer::new(Settings::new(2, 8));
//! let task = 0; // the caller numbers its tasks, from 0 to 7 here
//! placer.take(&Signal::Admit { task, admission: Admission::new(CpuSet::first(2), Some(0)), at_ns: 0 });
//! let beat = Beat { vcpu: 0, due_ns: 1_000_000, at_ns: 1_040_000, period_ns: 1_000_000, steal_ns: None, run_delay_ns: None };
//! assert!(placer.take(&Signal::Beat(beat)).is_empty()); // nothing is wrong, so nothing moves
//! ```

pub mod beat;
pub mod boost;
pub mod canary;
pub mod cpus;
pub mod explain;
pub mod fingerprint;
pub mod gang;
pub mod grant;
pub mod guard;
pub mod io;
pub mod kernel_log;
pub mod place;
pub mod pressure;
pub mod sample;
pub mod signal;
pub mod steady;
pub mod threshold;
pub mod window;

/// One second, ns.
pub const SECOND_NS: u64 = 1_000_000_000;
