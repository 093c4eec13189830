//! The ground `sim`: a deterministic simulator of a host and its virtual machines, at the level of scheduling
//! decisions, grace periods and pages.
//!
//! A run is a function of scenario and seed. Time is u64 nanoseconds of simulated time; events are ordered by
//! (time, class, sequence); each entity draws from a random stream of its own; nothing iterates over a hash map,
//! no time is a float, and nothing in a run is a thread. So a run gives the same result on every machine.
//!
//! | part | what it is |
//! |---|---|
//! | [`queue`] | what happens next |
//! | [`random`] | one stream of random numbers an entity |
//! | [`sched`] | CPU schedulers, used by hosts for vCPUs and by guests for tasks |
//! | [`guest`] | vCPUs, interrupts, softirqs, tasks, spinlocks |
//! | [`guest::rcu`] | classic Tree RCU |
//! | [`guest::memory`] | page frames, buddy allocator, slab caches |
//! | [`workload`] | what the guest's tasks do |
//! | [`host`] | pCPUs and threads |
//! | [`device`] | disks, and the host's I/O scheduler |
//! | [`world`] | all of it, and the loop that lets time pass |
//! | [`latency`] | latencies that a workload measures |
//! | [`stall`] | why a vCPU waited: stalls by mechanism |
//! | [`ground`] | scenario in, observations out |

mod build;
mod cpu_share;
pub mod device;
mod digest;
mod error;
pub mod ground;
pub mod guest;
pub mod host;
pub mod latency;
mod observe;
pub mod queue;
pub mod random;
mod run;
pub mod sched;
pub mod stall;
pub mod workload;
pub mod world;

pub use error::SimError;
