//! Watching one run from outside: a thread that looks into the guest's memory and collects what the host's
//! scheduler did to its vCPUs, and the recording that comes of it.

mod grace_periods;
mod sampler;
mod scheduling;

pub use sampler::{MemorySample, Recording, Sampler, WorkSample};
pub use scheduling::{Scheduling, Watcher};
