//! The ground `sim`: a deterministic simulator of a host and its virtual machines, at the level of scheduling
//! decisions, grace periods and pages.
//!
//! A run is a function of scenario and seed, and gives the same result on every machine. Time is u64 nanoseconds.
//! Events are ordered by (time, class, sequence). Each entity draws from its own random stream. Nothing iterates over a
//! hash map, no time is a float, and a run uses no threads.
//!
//! | part | what it is |
//! |---|---|
//! | [`queue`] | timers, and which one expires next |
//! | [`random`] | random streams, one per entity |
//! | [`sched`] | CPU schedulers, used by hosts for vCPUs and by guests for tasks |
//! | [`guest`] | vCPUs, interrupts, softirqs, tasks, spinlocks |
//! | [`guest::rcu`] | classic Tree RCU |
//! | [`guest::memory`] | page frames, buddy allocator, slab caches |
//! | [`workload`] | what the guest's tasks do |
//! | [`host`] | pCPUs, and the threads on them |
//! | [`device`] | disks and the host's I/O scheduler |
//! | [`world`] | everything in a run, and the event loop |
//! | [`latency`] | the latencies that a workload measures |
//! | [`stall`] | what made a vCPU wait |
//! | [`ground`] | scenario in, observations out |

mod bits;
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

/// This simulator: the program's version, and the hash of the source of all that a run depends on but other crates, of which only
/// random streams matter, and these stay as they are. Two programs with the same one give the same results.
pub const VERSION: &str = match cfg!(debug_assertions) {
    true => concat!(env!("CARGO_PKG_VERSION"), "+", env!("REPRIEVE_SIMULATOR"), ".checked"),
    false => concat!(env!("CARGO_PKG_VERSION"), "+", env!("REPRIEVE_SIMULATOR")),
};
